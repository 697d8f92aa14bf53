package conformance

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
	f.t.Helper()
	pool := faults.Open(f.t, f.db, hooks)
	c, err := join.NewCoordinator(pool, join.Config{Dialect: f.config.Dialect, Schema: f.config.Schema}, nil)
	f.NoError(err)
	return &lossy{f, pool, f.newOutbox(pool), c}
}

// close leaves nothing for the next call.
func (l *lossy) close() {
	l.t.Helper()
	l.NoError(l.pool.Close())
	l.exec("DELETE FROM {wait}")
	l.exec("DELETE FROM {member}")
	l.exec("DELETE FROM {join}")
	l.clear()
}

var changingCalls = []changingCall{
	{"Publish", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		return func(l *lossy) error {
			return l.publisher(l.pool).Publish("orders", message.NewMessage("1", nil))
		}, f.grows("{outbox}")
	}},
	{"Enqueue in batches", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		return func(l *lossy) error {
			_, err := l.outbox.Enqueue(f.ctx(), l.pool, make1100("orders")...)
			return err
		}, f.grows("{outbox}")
	}},
	{"InTx", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		return func(l *lossy) error {
			return outbox.InTx(f.ctx(), l.pool, func(ctx context.Context, tx *sql.Tx) error {
				_, err := l.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
				return err
			})
		}, f.grows("{outbox}")
	}},
	{"Claim", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.enqueueN("orders", 1)[0]
		return func(l *lossy) error {
			_, err := l.outbox.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders")})
			return err
		}, func() bool { return f.row(id).status == int(outbox.InProgress) }
	}},
	{"Settle", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		held := f.claimOne("orders")
		return func(l *lossy) error {
			_, err := l.outbox.Settle(f.ctx(), l.pool, settled(outbox.Ack, held))
			return err
		}, func() bool { return f.row(held.ID).status == int(outbox.Done) }
	}},
	{"Renew", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		held := f.claimOne("orders")
		return func(l *lossy) error {
				_, err := l.outbox.Renew(f.ctx(), 3*time.Hour, held.Receipt)
				return err
			}, func() bool {
				return len(f.rows("{message_id} = '"+held.ID.String()+"' AND {locked_until} > {future}")) == 1
			}
	}},
	{"ReapExpired", true, func(f *fixture) (func(l *lossy) error, func() bool) {
		held := f.claimOne("orders")
		f.expireLeases()
		return func(l *lossy) error {
			_, err := l.outbox.ReapExpired(f.ctx())
			return err
		}, func() bool { return f.row(held.ID).status == int(outbox.Ready) }
	}},
	{"Requeue", true, func(f *fixture) (func(l *lossy) error, func() bool) {
		held := f.claimOne("orders")
		f.settle(settled(outbox.Fail, held)...)
		return func(l *lossy) error {
			_, err := l.outbox.Requeue(f.ctx(), outbox.RequeueParams{IDs: []outbox.MessageID{held.ID}})
			return err
		}, func() bool { return f.row(held.ID).status == int(outbox.Ready) }
	}},
	{"Purge", true, func(f *fixture) (func(l *lossy) error, func() bool) {
		f.settle(settled(outbox.Ack, f.claimOne("orders"))...)
		return func(l *lossy) error {
			_, err := l.outbox.Purge(f.ctx(), outbox.PurgeParams{})
			return err
		}, func() bool { return len(f.rows("{status} = 2")) == 0 }
	}},
	{"join.Start", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		return func(l *lossy) error {
			_, err := l.joins.Start(f.ctx(), nil, join.StartParams{ExpectedSteps: 1})
			return err
		}, f.grows("{join}")
	}},
	{"join.Enqueue", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.start(f.joins(), join.StartParams{Open: true})
		return func(l *lossy) error {
			_, err := l.joins.Enqueue(f.ctx(), nil, id, outbox.Message{Topic: "orders"})
			return err
		}, f.grows("{outbox}")
	}},
	{"join.Attach", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id, message := f.start(f.joins(), join.StartParams{Open: true}), f.enqueueN("orders", 1)[0]
		return func(l *lossy) error { return l.joins.Attach(f.ctx(), nil, id, message) },
			func() bool { return len(f.steps(id)) == 1 }
	}},
	{"join.ReportStepCompleted", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.start(f.joins(), join.StartParams{ExpectedSteps: 1})
		f.NoError(f.joins().AttachByReport(f.ctx(), nil, id, outbox.MessageID{1}))
		return func(l *lossy) error { return l.joins.ReportStepCompleted(f.ctx(), nil, id, outbox.MessageID{1}) },
			func() bool { return f.join(f.joins(), id).CompletedSteps == 1 }
	}},
	{"join.EnqueueWait", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.start(f.joins(), join.StartParams{Open: true})
		return func(l *lossy) error {
			_, err := l.joins.EnqueueWait(f.ctx(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
			return err
		}, f.grows("{outbox}")
	}},
	{"join.AttachJoin", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		parent, child := f.start(f.joins(), join.StartParams{Open: true}), f.start(f.joins(), join.StartParams{Open: true})
		return func(l *lossy) error { return l.joins.AttachJoin(f.ctx(), nil, parent, child) },
			func() bool { return len(f.steps(parent)) == 1 }
	}},
	{"join.Cancel", false, func(f *fixture) (func(l *lossy) error, func() bool) {
		id := f.start(f.joins(), join.StartParams{Open: true})
		return func(l *lossy) error { return l.joins.Cancel(f.ctx(), nil, id) },
			func() bool { return f.join(f.joins(), id).Status == join.Cancelled }
	}},
}

// grows tells whether a table has more rows than now.
func (f *fixture) grows(table string) func() bool {
	before := f.number("SELECT COUNT(*) FROM %s", table)
	return func() bool { return f.number("SELECT COUNT(*) FROM %s", table) > before }
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
	f.t.Helper()
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
			taken, err := l.pool.Conn(f.ctx())
			f.NoError(err)
			run, done := c.prepare(&fixture{Assertions: f.Assertions, t: t, db: f.db, config: f.config, outbox: f.outbox})
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
		_, err := l.outbox.Enqueue(f.ctx(), l.pool, outbox.Message{Topic: "orders"})
		f.NoError(err)
		f.Equal(1, f.count())
	})
}
