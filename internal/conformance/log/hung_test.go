package log_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// The statements of the log, as they are sent on any database.
func isLogRead(text string) bool {
	return strings.Contains(strings.ToLower(text), "outbox_log_read") || strings.Contains(text, "summed AS")
}

func isLogLease(text string) bool {
	return strings.Contains(strings.ToLower(text), "outbox_log_lease") || strings.Contains(text, `LEFT JOIN "main"."outbox_log_group"`)
}

func isLogStamp(text string) bool {
	return strings.Contains(strings.ToLower(text), "outbox_log_stamp") || strings.Contains(text, `INSERT INTO "main"."outbox_log" (`)
}

// hangingPool hangs the next statement of a kind each time that it is armed, until its context ends.
type hangingPool struct {
	db    *sql.DB
	armed atomic.Bool
	hung  chan struct{}
}

func (f *fixture) hangingPool(is func(string) bool) *hangingPool {
	p := &hangingPool{hung: make(chan struct{}, 100)}
	p.db = faults.Open(f.T, f.DB, faults.Hooks{Fault: func(_ context.Context, s faults.Statement) faults.Fault {
		if is(s.Text) && p.armed.CompareAndSwap(true, false) {
			p.hung <- struct{}{}
			return faults.Fault{Kind: faults.Hang, For: time.Hour}
		}
		return faults.Fault{}
	}})
	return p
}

func (p *hangingPool) hang(f *fixture) {
	f.T.Helper()
	p.armed.Store(true)
	suite.Take(f.T, p.hung, "the statement")
}

// A read, and a renewal or an advance, that is never answered holds a group up for a part of its lease, and Close no longer
// than it says. Nothing is left behind: the pool is empty, and the goroutines are counted when all tests are over.
func TestTrap_HungLogRead(t *testing.T) {
	for name, is := range map[string]func(string) bool{"read": isLogRead, "advance": isLogLease} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				pool := f.hangingPool(is)
				s := f.GroupSubscriber(pool.db, "group", nil, func(c *outbox.SubscriberConfig) { c.LeaseDuration = 8 * time.Second })
				messages := f.Subscribe(s, "orders")
				f.LogN("orders", 0, 1)
				f.Stamp()
				f.Receive(messages).Ack()
				pool.hang(f)
				f.LogN("orders", 1, 2)
				f.Stamp()
				hung := time.Now()
				msg := f.Receive(messages)
				f.Less(time.Since(hung), suite.Patience, "an answer that never comes is not waited for")
				f.Equal("1", msg.UUID)
				msg.Ack()

				pool.hang(f)
				closing := time.Now()
				f.NoError(s.Close())
				f.Less(time.Since(closing), suite.Patience)
				f.Eventually(func() bool { return pool.db.Stats().InUse == 0 }, suite.Patience, time.Millisecond)
			})
		})
	}
}

// A handler whose renewal hangs is told by its own clock that its lease is over, and another goes on.
func TestTrap_AHungRenewalOfAGroupEndsTheHandler(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 1)
		f.Stamp()
		var hang atomic.Bool
		pool := faults.Open(t, f.DB, faults.Hooks{Fault: func(_ context.Context, s faults.Statement) faults.Fault {
			if isLogLease(s.Text) && hang.Load() {
				return faults.Fault{Kind: faults.Hang, For: time.Hour}
			}
			return faults.Fault{}
		}})
		lease := func(c *outbox.SubscriberConfig) { c.LeaseDuration = 4 * time.Second }
		first := f.GroupSubscriber(pool, "group", nil, lease)
		msg := f.Receive(f.Subscribe(first, "orders"))
		hang.Store(true)
		second := f.Subscribe(f.GroupSubscriber(f.DB.DB, "group", nil, lease), "orders")
		suite.Take(f.T, msg.Context().Done(), "the end of the handler's context")
		f.Receive(second).Ack()
		hang.Store(false)
		msg.Ack()
	})
}

// A stamp that is never answered is tried again.
func TestTrap_HungStamp(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := f.hangingPool(isLogStamp)
		s, err := outbox.NewSequencer(pool.db, outbox.SequencerConfig{
			Dialect: f.Config.Dialect, Schema: f.Config.Schema, PollInterval: time.Millisecond, MaxPollInterval: time.Millisecond, Timeout: 500 * time.Millisecond}, nil)
		f.NoError(err)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Errorf("the sequencer: %v", err)
			}
		})
		defer running.Wait()
		defer cancel()
		pool.armed.Store(true)
		f.LogN("orders", 0, 3)
		suite.Take(f.T, pool.hung, "the stamp")
		f.Stamped(3)
		pool.armed.Store(true)
		f.LogN("orders", 3, 4)
		suite.Take(f.T, pool.hung, "the stamp")
		cancel()
		running.Wait()
		f.Eventually(func() bool { return pool.db.Stats().InUse == 0 }, suite.Patience, time.Millisecond)
		f.requireBadSequencer("SequencerConfig.Timeout", func(c *outbox.SequencerConfig) { c.Timeout = -1 })
	})
}

func (f *fixture) requireBadSequencer(field string, option func(*outbox.SequencerConfig)) {
	f.T.Helper()
	config := outbox.SequencerConfig{Dialect: f.Config.Dialect}
	option(&config)
	_, err := outbox.NewSequencer(f.DB.DB, config, nil)
	f.RequireField(err, field)
}

// A dispatcher's read that is never answered holds its policy up for a part of its lease.
func TestTrap_HungLogReadOfFanout(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		pool := f.hangingPool(isLogRead)
		stop := f.DispatchOn(pool.db, nil, []fanout.Policy{suite.ToTopics("p", "copy")}, func(c *fanout.Config) { c.LeaseDuration = 8 * time.Second })
		pool.hang(f)
		f.LogN("orders", 0, 3)
		f.HasPassed("p", 3)
		stop()
		f.Zero(pool.db.Stats().InUse)
	})
}

// What a slow read returns is not handed out when the lease has run out meanwhile and another has taken it.
func TestTrap_NothingIsHandedOutAfterTheLease(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lease = 200 * time.Millisecond
		var armed, stale atomic.Bool
		reading, asked := make(chan struct{}), make(chan struct{})
		var once sync.Once
		pool := faults.Open(t, f.DB, faults.Hooks{Fault: func(_ context.Context, s faults.Statement) faults.Fault {
			switch {
			case isLogRead(s.Text) && armed.CompareAndSwap(true, false):
				close(reading)
				return faults.Fault{Kind: faults.Delay, For: lease + lease/2}
			case isLogLease(s.Text) && stale.Load():
				once.Do(func() { close(asked) })
			}
			return faults.Fault{}
		}})
		s := f.GroupSubscriber(pool, "group", nil, func(c *outbox.SubscriberConfig) { c.LeaseDuration = lease })
		messages := f.Subscribe(s, "orders")
		f.LogN("orders", 0, 1)
		f.Stamp()
		f.Receive(messages).Ack()
		armed.Store(true)
		suite.Take(f.T, reading, "the read")
		f.LogN("orders", 1, 2)
		f.Exec("UPDATE %s SET {owner_token} = '%s', {locked_until} = {future}", f.LogTable("group"), base.NewOwnerToken())
		stale.Store(true)
		f.Stamp()
		suite.Take(f.T, asked, "the question for the lease")
		select {
		case msg := <-messages:
			f.Fail("handed out without the lease", msg.UUID)
		case <-time.After(50 * time.Millisecond): // it must not come at all
		}
	})
}

// readsOf is a pool that calls f after each of the first eight reads of the log.
func (f *fixture) readsOf(done func()) *sql.DB {
	var reads atomic.Int64
	return faults.Open(f.T, f.DB, faults.Hooks{After: func(_ context.Context, s faults.Statement, _ error) {
		if isLogRead(s.Text) && reads.Add(1) <= 8 {
			done()
		}
	}})
}
