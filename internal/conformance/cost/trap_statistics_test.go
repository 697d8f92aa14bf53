package cost_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// Whatever the database believes about its tables, a call of ten keys reads what belongs to those ten, of all tables.

// setsStatistics: a test may tell the database how many rows it believes in.
var setsStatistics = suite.NewCapability("statistics that a test can set", func(ctx context.Context, db *testdb.DB) (string, error) {
	switch db.Name {
	case testdb.SQLServer:
		return "its plans are pinned by hints", nil
	case testdb.Postgres:
		return suite.ProbeValue(ctx, db, map[string]string{testdb.Postgres: "SELECT current_setting('is_superuser')"}, "on")
	default:
		return "", nil
	}
})

func TestLong_EachStatementIsDrivenFromItsKeys(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(setsStatistics)
		f.WithInbox = true
		f = &fixture{f.Alone()}
		const keys = 10
		f.load(5000)
		c := f.Joins()
		for range 100 {
			f.StartWith(c, "steps", 30)
		}
		take := func(topic string, limit int) []outbox.Claimed { // for longer than the test takes
			return f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas(topic), Limit: limit, Lease: time.Hour})
		}
		f.Empty(f.Settle(suite.Settled(outbox.Ack, take("steps", 1000)...)...))
		large := f.Start(c, join.StartParams{ExpectedSteps: 1 << 20})
		f.AddSteps(c, large, "large", 1000)
		logged := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Log = outbox.QueueAndLog })
		f.logInto(logged, 3000)

		others, held := take("steps", 1000), take("large", keys)
		free := f.EnqueueN("free", keys)
		ended := take("topic 1", keys)
		f.Empty(f.Settle(suite.Settled(outbox.Ack, ended...)...))
		almost, last := f.StartWith(c, "last", 1)
		f.Wait(c, suite.Waits(almost, "next", ""))
		ending := take("last", keys)
		f.Len(ending, len(last))
		f.pause("none")

		calls := map[string]func(c *counted) error{
			"claim": func(c *counted) error {
				_, err := c.outbox.Claim(c.Context(), outbox.ClaimParams{Topics: suite.Quotas("topic 1", "topic 2", "none"), Limit: keys})
				return err
			},
			"claim what a join woke": func(c *counted) error {
				for _, one := range held {
					c.ExecOn(c.x, "INSERT INTO %s (seq) VALUES (%d)", c.Part("wake"), one.Receipt.Seq)
				}
				_, err := c.outbox.Claim(c.Context(), outbox.ClaimParams{Topics: suite.Quotas("none"), Limit: keys})
				return err
			},
			"renew": func(c *counted) error {
				refused, err := c.outbox.Renew(c.Context(), time.Minute, receipts(held)...)
				c.Empty(refused)
				return err
			},
			"ack steps":          func(c *counted) error { return c.settles(outbox.Ack, held) },
			"fail steps":         func(c *counted) error { return c.settles(outbox.Fail, others[:keys]) },
			"retry":              func(c *counted) error { return c.settles(outbox.Retry, held) },
			"end a join":         func(c *counted) error { return c.settles(outbox.Ack, ending) },
			"settle what others": func(c *counted) error { _, err := c.outbox.Settle(c.Context(), c.x, lost(held)); return err },
			"delete acked": func(c *counted) error {
				o := c.NewOutbox(c.pool, func(c *outbox.Config) { c.DeleteOnAck = true })
				_, err := o.Settle(c.Context(), c.x, suite.Settled(outbox.Ack, held...))
				return err
			},
			"reap": func(c *counted) error { _, err := c.outbox.ReapExpired(c.Context()); return err },
			"get":  func(c *counted) error { _, err := c.outbox.Get(c.Context(), free...); return err },
			"enqueue": func(c *counted) error {
				_, err := c.outbox.Enqueue(c.Context(), c.x, someMessages(keys)...)
				return err
			},
			"purge": func(c *counted) error {
				_, err := c.outbox.Purge(c.Context(), outbox.PurgeParams{OlderThan: 24 * time.Hour})
				return err
			},
			"purge the log": func(c *counted) error {
				_, err := c.outbox.Purge(c.Context(), outbox.PurgeParams{Log: true, OlderThan: 24 * time.Hour})
				return err
			},
			"failed": func(c *counted) error {
				_, err := c.outbox.Failed(c.Context(), outbox.ListParams{Limit: keys})
				return err
			},
			"attach": func(c *counted) error { return c.joins.Attach(c.Context(), c.x, large, free...) },
			"attach what has ended": func(c *counted) error {
				return c.joins.Attach(c.Context(), c.x, large, suite.MessageIDs(ended)...)
			},
			"attach by report": func(c *counted) error { return c.joins.AttachByReport(c.Context(), c.x, large, free...) },
			"report": func(c *counted) error {
				return c.joins.ReportStepCompleted(c.Context(), c.x, large, held[0].ID)
			},
			"wait":     func(c *counted) error { c.WaitOn(c.joins, c.x, large, "next"); return nil },
			"log read": func(c *counted) error { return c.readLog("logged 1", 100, keys) },
			"cancel":   func(c *counted) error { return c.joins.Cancel(c.Context(), c.x, almost) },
			"join":     func(c *counted) error { _, err := c.joins.Get(c.Context(), c.x, large); return err },
			"cancel messages": func(c *counted) error {
				_, err := seam.Outbox(c.outbox).ChangeJoin(c.Context(), c.x, "outbox_end", map[string]any{"ids": suite.MessageIDs(held), "worker": "w", "reason": "r"})
				return errors.Join(err, c.act("outbox_end", map[string]any{"ids": free, "worker": "w", "reason": "r"}))
			},
			"delay": func(c *counted) error { return c.act("outbox_delay", map[string]any{"ids": free, "delay_ms": 1000}) },
			"workers": func(c *counted) error {
				return c.act("outbox_worker_list", map[string]any{"limit": keys, "leases": keys, "sample": keys})
			},
			"pending joins": func(c *counted) error {
				_, err := c.joins.Pending(c.Context(), c.x, join.ID{}, keys)
				return err
			},
			"recent joins": func(c *counted) error { _, err := c.joins.Recent(c.Context(), c.x, join.ID{}, keys); return err },
			"steps":        func(c *counted) error { _, err := c.joins.Steps(c.Context(), c.x, large, held[9].ID, keys); return err },
		}
		f.underAllStatistics(calls)
	})
}

func TestLong_EachStatementOfAnInboxIsDrivenFromItsKeys(t *testing.T) {
	suite.ForEachInbox(t, func(t *testing.T, in *suite.InboxFixture) {
		f := &fixture{in.Fixture}
		f.Needs(setsStatistics)
		ids := make([]string, 3000)
		for i := range ids {
			ids[i] = fmt.Sprint("message ", i)
		}
		for n := 0; n < len(ids); n += 1000 {
			in.Received(ids[n : n+1000]...)
		}
		var keys []inbox.Key
		var again []inbox.Received
		for _, id := range ids[:10] {
			keys = append(keys, suite.KeyOf(id))
			again = append(again, suite.ReceivedOf(id, "payload of "+id))
		}
		f.underAllStatistics(map[string]func(c *counted) error{
			"entries": func(c *counted) error { _, err := in.Open(c.pool, "", nil).Get(c.Context(), keys...); return err },
			"enqueue again": func(c *counted) error {
				_, err := in.Open(c.pool, "", nil).Enqueue(c.Context(), c.x, again...)
				return err
			},
			"purge entries": func(c *counted) error {
				_, err := in.Open(c.pool, "", nil).Purge(c.Context(), outbox.PurgeParams{OlderThan: time.Hour})
				return err
			},
		})
	})
}

// logInto publishes n messages into the log, over ten topics, and gives them their positions.
func (f *fixture) logInto(o *outbox.Outbox, n int) {
	f.T.Helper()
	for i := 0; i < n; i += 1000 {
		messages := someMessages(1000)
		for k := range messages {
			messages[k].Topic = fmt.Sprint("logged ", k%10)
		}
		_, err := o.Enqueue(f.Context(), f.DB, messages...)
		f.NoError(err)
	}
	f.Stamp()
}

func someMessages(n int) []outbox.Message {
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i].Topic = "some"
	}
	return messages
}

func receipts(claimed []outbox.Claimed) (list []outbox.Receipt) {
	for _, c := range claimed {
		list = append(list, c.Receipt)
	}
	return list
}

// lost are settlements by somebody who does not hold the messages.
func lost(claimed []outbox.Claimed) []outbox.Settlement {
	list := suite.Settled(outbox.Ack, claimed...)
	for i := range list {
		list[i].Receipt.Owner = base.NewOwnerToken()
	}
	return list
}

func (c *counted) settles(outcome outbox.Outcome, claimed []outbox.Claimed) error {
	refused, err := c.outbox.Settle(c.Context(), c.x, suite.Settled(outcome, claimed...))
	c.Empty(refused)
	return err
}

func (c *counted) readLog(topic string, after int64, limit int) error {
	cursor, err := seam.NewCursor[outbox.LogMessage](c.outbox, seam.CursorConfig{Group: "readers", Topic: topic})
	c.NoError(err)
	messages, err := cursor.Read(c.Context(), after, limit)
	if err == nil {
		c.Len(messages, limit)
	}
	return err
}
