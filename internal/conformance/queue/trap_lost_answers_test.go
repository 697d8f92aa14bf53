package queue_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/join"
)

// What is known of a call when the answer of the database is lost.

// A changingCall is a call that commits: prepare makes what it needs and returns it, and how to see that it was done.
type changingCall struct {
	name    string
	repeats bool
	prepare func(f *fixture) (run func(l *lossy) error, done func() bool)
}

// lossy is the library over a pool that loses answers.
type lossy struct {
	*fixture
	pool   *sql.DB
	outbox *outbox.Outbox
	joins  *join.Coordinator
}

func (f *fixture) lossy(hooks faults.Hooks) *lossy {
	f.T.Helper()
	pool := faults.Open(f.T, f.DB, hooks)
	c, err := join.NewCoordinator(pool, join.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, nil)
	f.NoError(err)
	return &lossy{f, pool, f.NewOutbox(pool), c}
}

// close leaves nothing for the next call.
func (l *lossy) close() {
	l.T.Helper()
	l.NoError(l.pool.Close())
	l.Exec("DELETE FROM {wait}")
	l.Exec("DELETE FROM {member}")
	l.Exec("DELETE FROM {join}")
	l.Clear()
}

var changingCalls = []changingCall{
	{"Publish", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		return func(l *lossy) error {
			return l.Publisher(l.pool).Publish("orders", message.NewMessage("1", nil))
		}, f.grows("{outbox}")
	}},
	{"Enqueue in batches", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		return func(l *lossy) error {
			_, err := l.outbox.Enqueue(f.Context(), l.pool, make1100("orders")...)
			return err
		}, f.grows("{outbox}")
	}},
	{"InTx", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		return func(l *lossy) error {
			return outbox.InTx(f.Context(), l.pool, func(ctx context.Context, tx *sql.Tx) error {
				_, err := l.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
				return err
			})
		}, f.grows("{outbox}")
	}},
	{"Claim", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.EnqueueN("orders", 1)[0]
		return func(l *lossy) error {
			_, err := l.outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
			return err
		}, func() bool { return f.Row(id).Status == int(outbox.InProgress) }
	}},
	{"Settle", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		held := f.ClaimOne("orders")
		return func(l *lossy) error {
			_, err := l.outbox.Settle(f.Context(), l.pool, suite.Settled(outbox.Ack, held))
			return err
		}, func() bool { return f.Row(held.ID).Status == int(outbox.Done) }
	}},
	{"Renew", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		held := f.ClaimOne("orders")
		return func(l *lossy) error {
				_, err := l.outbox.Renew(f.Context(), 3*time.Hour, held.Receipt)
				return err
			}, func() bool {
				return len(f.Rows("{message_id} = '"+held.ID.String()+"' AND {locked_until} > {future}")) == 1
			}
	}},
	{"ReapExpired", true, func(f *fixture) (func(l *lossy) error, func() bool) {
		held := f.ClaimOne("orders")
		f.ExpireLeases()
		return func(l *lossy) error {
			_, err := l.outbox.ReapExpired(f.Context())
			return err
		}, func() bool { return f.Row(held.ID).Status == int(outbox.Ready) }
	}},
	{"Requeue", true, func(f *fixture) (func(l *lossy) error, func() bool) {
		held := f.ClaimOne("orders")
		f.Settle(suite.Settled(outbox.Fail, held)...)
		return func(l *lossy) error {
			_, err := l.outbox.Requeue(f.Context(), outbox.RequeueParams{IDs: []outbox.MessageID{held.ID}})
			return err
		}, func() bool { return f.Row(held.ID).Status == int(outbox.Ready) }
	}},
	{"Purge", true, func(f *fixture) (func(l *lossy) error, func() bool) {
		f.Settle(suite.Settled(outbox.Ack, f.ClaimOne("orders"))...)
		return func(l *lossy) error {
			_, err := l.outbox.Purge(f.Context(), outbox.PurgeParams{})
			return err
		}, func() bool { return len(f.Rows("{status} = 2")) == 0 }
	}},
	{"join.Start", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		return func(l *lossy) error {
			_, err := l.joins.Start(f.Context(), nil, join.StartParams{ExpectedSteps: 1})
			return err
		}, f.grows("{join}")
	}},
	{"join.Enqueue", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.Start(f.Joins(), join.StartParams{Open: true})
		return func(l *lossy) error {
			_, err := l.joins.Enqueue(f.Context(), nil, id, outbox.Message{Topic: "orders"})
			return err
		}, f.grows("{outbox}")
	}},
	{"join.Attach", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id, message := f.Start(f.Joins(), join.StartParams{Open: true}), f.EnqueueN("orders", 1)[0]
		return func(l *lossy) error { return l.joins.Attach(f.Context(), nil, id, message) },
			func() bool { return len(f.Steps(id)) == 1 }
	}},
	{"join.ReportStepCompleted", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.Start(f.Joins(), join.StartParams{ExpectedSteps: 1})
		f.NoError(f.Joins().AttachByReport(f.Context(), nil, id, outbox.MessageID{1}))
		return func(l *lossy) error { return l.joins.ReportStepCompleted(f.Context(), nil, id, outbox.MessageID{1}) },
			func() bool { return f.Join(f.Joins(), id).CompletedSteps == 1 }
	}},
	{"join.EnqueueWait", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.Start(f.Joins(), join.StartParams{Open: true})
		return func(l *lossy) error {
			_, err := l.joins.EnqueueWait(f.Context(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
			return err
		}, f.grows("{outbox}")
	}},
	{"join.AttachJoin", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		parent, child := f.Start(f.Joins(), join.StartParams{Open: true}), f.Start(f.Joins(), join.StartParams{Open: true})
		return func(l *lossy) error { return l.joins.AttachJoin(f.Context(), nil, parent, child) },
			func() bool { return len(f.Steps(parent)) == 1 }
	}},
	{"join.Cancel", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.Start(f.Joins(), join.StartParams{Open: true})
		return func(l *lossy) error { return l.joins.Cancel(f.Context(), nil, id) },
			func() bool { return f.Join(f.Joins(), id).Status == join.Cancelled }
	}},
}

// grows tells whether a table has more rows than now.
func (f *fixture) grows(table string) func() bool {
	before := f.Number("SELECT COUNT(*) FROM %s", table)
	return func() bool { return f.Number("SELECT COUNT(*) FROM %s", table) > before }
}

func make1100(topic string) []outbox.Message {
	messages := make([]outbox.Message, 1100)
	for i := range messages {
		messages[i].Topic = topic
	}
	return messages
}

// committing is the number of the statement of the call that commits. The calls that repeat themselves until they find no
// more have committed with the first.
func (c changingCall) committing(f *fixture) int64 {
	f.T.Helper()
	log := &faults.Log{}
	l := f.lossy(log.Hooks())
	run, done := c.prepare(f)
	f.NoError(run(l), c.name)
	f.True(done(), c.name)
	l.close()
	last := int64(0)
	for i, s := range log.Take() {
		if s.Text == faults.Commit {
			return int64(i + 1)
		}
		last = int64(i + 1)
	}
	if c.repeats {
		return 1
	}
	return last
}

func TestTrap_LostAnswers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, c := range changingCalls {
			last := c.committing(f)
			var n atomic.Int64
			l := f.lossy(faults.Hooks{Answer: func(context.Context, faults.Statement) error {
				if n.Add(1) == last {
					return io.ErrUnexpectedEOF
				}
				return nil
			}})
			run, done := c.prepare(f)
			err := run(l)
			f.ErrorIs(err, outbox.ErrUnknownOutcome, c.name)
			f.ErrorIs(err, io.ErrUnexpectedEOF, c.name)
			f.False(outbox.IsRetryable(err))
			f.Eventually(done, 10*time.Second, 10*time.Millisecond, c.name)
			l.close()
		}
	})
}

func TestTrap_WhatIsKnownNotToBeCommittedIsNotUnknown(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, c := range changingCalls {
			last := c.committing(f)
			for at := int64(1); at <= last; at++ {
				var n atomic.Int64
				l := f.lossy(faults.Hooks{Before: func(context.Context, faults.Statement) error {
					if n.Add(1) == at {
						return &faults.Error{Number: 50000, State: "XX000", Result: 19}
					}
					return nil
				}})
				run, done := c.prepare(f)
				err := run(l)
				f.Error(err, c.name)
				f.NotErrorIs(err, outbox.ErrUnknownOutcome, "%s: statement %d of %d", c.name, at, last)
				f.False(done(), c.name)
				l.close()
			}

			l := f.lossy(faults.Hooks{})
			l.pool.SetMaxOpenConns(1)
			taken, err := l.pool.Conn(f.Context())
			f.NoError(err)
			run, done := c.prepare(&fixture{f.On(f.DB)})
			answered := make(chan error)
			go func() { answered <- run(l) }()
			f.Eventually(func() bool { return l.pool.Stats().WaitCount == 1 }, 10*time.Second, time.Millisecond)
			f.NoError(l.pool.Close())
			err = <-answered
			f.Error(err, c.name)
			f.NotErrorIs(err, outbox.ErrUnknownOutcome, c.name)
			f.False(done(), c.name)
			f.NoError(taken.Close())
			l.close()
		}
	})
}

// A connection that turns out to be broken before anything was sent is replaced.
func TestTrap_WhatWasNotSentIsSentAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var n atomic.Int64
		l := f.lossy(faults.Hooks{Before: func(context.Context, faults.Statement) error {
			if n.Add(1) == 1 {
				return driver.ErrBadConn
			}
			return nil
		}})
		_, err := l.outbox.Enqueue(f.Context(), l.pool, outbox.Message{Topic: "orders"})
		f.NoError(err)
		f.Equal(1, f.Count())
	})
}
