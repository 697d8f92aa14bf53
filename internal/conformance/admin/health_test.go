package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

var errStory = errors.New("first")

func TestHealth(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		h, err := f.admin.Health(ctx)
		f.NoError(err)
		f.WithinDuration(time.Now(), h.Now, time.Minute)
		now := h.Now
		h.Now = time.Time{}
		f.Zero(h)

		dialect := testoutbox.Dialect(f.DB.Name)
		both, err := outbox.New(f.DB.DB, outbox.Config{Dialect: dialect, Schema: f.DB.Schema, Log: outbox.QueueAndLog}, nil)
		f.NoError(err)
		_, err = both.Enqueue(ctx, f.DB.DB, outbox.Message{UUID: "a", Topic: "orders"}, outbox.Message{UUID: "b", Topic: "orders", StreamKey: "b"}, outbox.Message{UUID: "c", Topic: "bills"})
		f.NoError(err)
		f.Enqueue("refused", 0, 2)
		f.fail("refused", "broken", 0)
		_, err = f.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}, {Topic: "bills"}}, Lease: time.Hour})
		f.NoError(err)
		f.Enqueue("lost", 0, 1)
		_, err = f.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "lost"}}, Lease: time.Millisecond})
		f.NoError(err)
		f.passes()

		h, err = f.admin.Health(ctx)
		f.NoError(err)
		f.Equal(2, h.Leases, "one of them no longer holds anything")
		f.Equal(1, h.ExpiredLeases)
		f.True(h.ExpiredSince.After(now.Add(-time.Millisecond)) && h.ExpiredSince.Before(h.Now))
		f.Equal(2, h.Failed)
		f.False(h.OldestFailed.IsZero())
		f.False(h.NewestFailed.Before(h.OldestFailed))
		f.Equal(3, h.Unlogged)
		f.False(h.UnloggedSince.IsZero())
		f.Zero(h.Position)

		leases, err := f.admin.Leases(ctx)
		f.NoError(err)
		var held []any
		for _, l := range leases {
			held = append(held, l.Topic, l.Messages)
		}
		f.Equal([]any{"bills", 1, "orders", 2, "", 0, "lost", 1}, held)
		f.NotEmpty(leases[0].Worker)
		f.True(leases[0].Until.After(h.Now))
	})
}

// A sequencer that is at work has locked what it writes, and neither hides nor anticipates the last position.
func TestTrap_HealthBesideASequencer(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		suite.Need(t, f.DB, suite.ConcurrentWriters)
		ctx := t.Context()
		logged, err := outbox.New(f.DB.DB, outbox.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema, Log: outbox.LogOnly}, nil)
		f.NoError(err)
		stamp := func(meanwhile func()) {
			_, err := logged.Enqueue(ctx, f.DB.DB, outbox.Message{UUID: "a", Topic: "orders"}, outbox.Message{UUID: "b", Topic: "orders"})
			f.NoError(err)
			f.NoError(outbox.InTx(ctx, f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				f.NoError(suite.StampIn(ctx, logged, tx))
				meanwhile()
				return nil
			}))
		}
		health := func() admin.Health {
			h, err := f.admin.Health(ctx)
			f.NoError(err)
			return h
		}
		stamp(func() { f.Zero(health().LoggedAt) })
		before := health()
		f.EqualValues(2, before.Position)
		f.False(before.LoggedAt.IsZero())
		stamp(func() {
			h := health()
			f.EqualValues(2, h.Position)
			f.Equal(before.LoggedAt, h.LoggedAt)
		})
		f.EqualValues(4, health().Position)

		purged, err := logged.Purge(ctx, outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Equal(4, purged)
		h := health()
		f.EqualValues(4, h.Position, "a position is never given twice")
		f.Zero(h.LoggedAt)
	})
}

// A lease stays when its messages end, until somebody settles or claims again: no message waits for it.
func TestTrap_AnExpiredLeaseThatHoldsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		claim := func(topic string) []outbox.Claimed {
			claimed, err := f.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topic}}, Lease: time.Millisecond, GiveBack: -1})
			f.NoError(err)
			f.passes()
			return claimed
		}
		expired := func() int {
			h, err := f.admin.Health(ctx)
			f.NoError(err)
			f.Equal(h.ExpiredLeases == 0, h.ExpiredSince.IsZero())
			return h.ExpiredLeases
		}
		f.Enqueue("orders", 0, 3)
		held := claim("orders")
		f.Len(held, 3)
		f.Equal(1, expired())
		end := func(x outbox.Executor, claimed ...outbox.Claimed) {
			var settlements []outbox.Settlement
			for _, c := range claimed {
				settlements = append(settlements, outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Ack})
			}
			refused, err := f.Settle(ctx, x, settlements)
			f.NoError(err)
			f.Empty(refused)
		}
		end(f.DB.DB, held[:2]...)
		f.Equal(1, expired(), "its last message waits")
		end(f.DB.DB, held[2])
		f.Zero(expired())

		_, err := f.Outbox.Outbox.Enqueue(ctx, f.DB.DB, outbox.Message{Topic: "bills", StreamKey: "a"})
		f.NoError(err)
		run := claim("bills")
		f.Len(run, 1)
		f.NoError(outbox.InTx(ctx, f.DB.DB, func(_ context.Context, tx *sql.Tx) error {
			end(tx, run...)
			return nil
		}))
		if f.DB.Name != testdb.SQLite { // where a caller's transaction frees it
			f.Equal(1, expired(), "its stream waits")
		}
		_, err = f.ReapExpired(ctx)
		f.NoError(err)
		f.Zero(expired())
	})
}

func TestLogGroups(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		groups, err := f.admin.LogGroups(ctx)
		f.NoError(err)
		f.Empty(groups)
		for _, name := range []string{"mail", "audit"} {
			config := f.Subscriber()
			config.ConsumerGroup = name
			s, err := outbox.NewSubscriber(f.DB.DB, config, nil)
			f.NoError(err)
			f.NoError(s.SubscribeInitialize("orders"))
			f.NoError(s.Close())
		}
		groups, err = f.admin.LogGroups(ctx)
		f.NoError(err)
		f.Len(groups, 2)
		f.Equal("audit", groups[0].Group)
		f.Equal("orders", groups[0].Topic)
		f.Zero(groups[0].Behind)
		f.Zero(groups[0].Lag)

		f.BlockGroup("mail", "orders")
		mail := func() admin.LogGroup {
			groups, err := f.admin.LogGroups(ctx)
			f.NoError(err)
			f.Len(groups, 2)
			return groups[1]
		}
		f.Equal(1, mail().Behind)
		f.Positive(mail().Attempts)
		_, err = f.admin.SkipGroupHead(ctx, admin.SkipGroupHeadParams{Group: "mail", Topic: "orders", By: "alice"})
		f.NoError(err)
		f.Zero(mail().Behind)
		f.Zero(mail().Attempts, "of the message that it is at, not of the one before")
		f.Equal(1, mail().Dead)
		f.Equal([]string{"alice: skip for group group 'mail', topic 'orders' (1)"}, f.audit())
	})
}

// A reader may hold the row of its group for as long as it handles a message. It is looked for just then.
func TestTrap_AGroupThatReadsIsListed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		suite.Need(t, f.DB, suite.ConcurrentWriters)
		f.BlockGroup("mail", "orders")
		tx, err := f.DB.BeginTx(t.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), f.SQL("UPDATE {outbox_log_group} SET {position} = {position}"))
		f.NoError(err)
		groups, err := f.admin.LogGroups(t.Context())
		f.NoError(err)
		f.Len(groups, 1)
		f.Equal(1, groups[0].Behind)
	})
}
