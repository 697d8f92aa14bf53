package subscriber_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// With DeleteOnAck, what cannot be deleted before the end is left to the janitor, which Close does not wait for.
func TestTrap_CloseIsBoundedWhileContentsAreDeleted(t *testing.T) {
	for name, test := range map[string]struct{ underWay, everything bool }{
		"the last deleting hangs": {}, "a deleting hangs": {underWay: true}, "everything hangs": {underWay: true, everything: true},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				var away atomic.Bool
				deleting := make(chan struct{}, 100)
				pool := faults.Open(t, f.DB, faults.Hooks{Fault: func(_ context.Context, s faults.Statement) faults.Fault {
					arg := fmt.Sprint(s.Args...)
					deletes := strings.Contains(arg, `"seqs"`) && strings.Contains(arg, `"older_than_ms"`)
					if deletes {
						away.Store(test.everything)
						deleting <- struct{}{}
					}
					if deletes || away.Load() {
						return faults.Fault{Kind: faults.Hang, For: time.Hour}
					}
					return faults.Fault{}
				}})
				const drain = 50 * time.Millisecond
				s, err := outbox.NewSubscriber(pool, outbox.SubscriberConfig{
					Dialect: f.Config.Dialect, Schema: f.Config.Schema, DeleteOnAck: true, DrainTimeout: drain}, nil)
				f.NoError(err)
				n := 1
				if test.everything {
					n = 2
				}
				f.EnqueueN("orders", n)
				received := f.ReceiveN(f.Subscribe(s, "orders"), n)
				received[0].Ack()
				if test.underWay {
					suite.Take(f.T, deleting, "the deleting")
				}
				if test.everything {
					received[1].Ack()
				}
				began := time.Now()
				err = s.Close()
				t.Logf("Close took %v: %v", time.Since(began).Round(time.Millisecond), err)
				f.Less(time.Since(began), drain+20*time.Second)
				hangs := test.everything || test.underWay && f.DB.Name == testdb.SQLite // which has one writer at a time
				f.Equal(hangs, err != nil, "%v", err)
				f.Zero(pool.Stats().InUse)
				if test.everything {
					return // the message that was not settled is delivered again
				}
				contents := func() int64 { return f.Number("SELECT COUNT(*) FROM {outbox}") }
				f.Zero(f.Count(), "messages")
				f.EqualValues(1, contents(), "what could not be deleted of one")
				purged, err := f.Outbox.PurgeOnce(f.Context(), outbox.JanitorConfig{Done: time.Nanosecond})
				f.NoError(err)
				f.Equal(1, purged["messages"])
				f.Zero(contents())
			})
		})
	}
}

// When Shutdown has ended the handlers' time, the database has as long as it has after DrainTimeout.
func TestTrap_ShutdownWaitsForNoDatabase(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var away atomic.Bool
		pool := faults.Open(t, f.DB, faults.Hooks{Fault: func(context.Context, faults.Statement) faults.Fault {
			if away.Load() {
				return faults.Fault{Kind: faults.Hang, For: time.Hour}
			}
			return faults.Fault{}
		}})
		s, err := outbox.NewSubscriber(pool, outbox.SubscriberConfig{
			Dialect: f.Config.Dialect, Schema: f.Config.Schema, LeaseDuration: time.Hour, DrainTimeout: time.Hour}, nil)
		f.NoError(err)
		f.EnqueueN("orders", 1)
		msg := f.Receive(f.Subscribe(s, "orders"))
		away.Store(true)
		msg.Ack()
		stopped := make(chan error, 2)
		go func() { stopped <- s.Close() }()
		go func() { stopped <- s.Shutdown(suite.Due{Context: context.WithoutCancel(f.Context())}) }()
		for range cap(stopped) {
			err, _ := suite.Take(f.T, stopped, "the end")
			f.ErrorContains(err, "did not answer")
		}
	})
}

// A deadline that is over leaves handlers no time.
func TestTrap_ShutdownAfterItsDeadline(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.DrainTimeout = time.Hour })
		id := f.EnqueueN("orders", 1)[0]
		msg := f.Receive(f.Subscribe(s, "orders"))
		ctx, cancel := context.WithDeadline(f.Context(), time.Now())
		defer cancel()
		f.ErrorIs(s.Shutdown(ctx), context.DeadlineExceeded)
		suite.Take(f.T, msg.Context().Done(), "the end of the handler's time")
		f.NoError(s.Close())
		f.Zero(f.Becomes(id, outbox.Ready).Retries)
	})
}
