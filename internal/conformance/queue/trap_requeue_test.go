package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// A handler that fails again at once made one call requeue more messages than had failed when it began.
func TestTrap_RequeueOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 5000
		f.EnqueueN("orders", n)
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {status} = 3, {processed_at} = {past}")
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() { // fails what is ready, as fast as it can
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				claimed, err := f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 200})
				if err == nil {
					_, err = f.Outbox.Settle(f.Context(), f.DB.DB, suite.Settled(outbox.Fail, claimed...))
				}
				if err != nil {
					t.Errorf("the worker: %v", err)
					return
				}
			}
		}()
		requeued, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{All: true})
		close(stop)
		suite.Take(f.T, stopped, "the end of the worker")
		f.NoError(err)
		f.Equal(n, requeued)
	})
}

func TestRequeue_NoIDsAreNone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		f.Settle(suite.Settled(outbox.Fail, c)...)
		for _, params := range []outbox.RequeueParams{{IDs: []outbox.MessageID{}}, {IDs: []outbox.MessageID{}, Topic: "orders"}} {
			n, err := f.Outbox.Requeue(f.Context(), params)
			f.NoError(err)
			f.Zero(n)
		}
		for _, params := range []outbox.RequeueParams{{}, {All: true, Topic: "orders"}, {All: true, IDs: []outbox.MessageID{}}} {
			_, err := f.Outbox.Requeue(f.Context(), params)
			f.RequireField(err, "RequeueParams.All")
		}
		f.Equal(int(outbox.Failed), f.Row(c.ID).Status)
		n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{All: true})
		f.NoError(err)
		f.Equal(1, n)
	})
}

// What cannot be a topic or a group was an error of the database.
func TestTrap_NULInArguments(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const bad = "or\x00ders"
		_, err := f.Outbox.Failed(f.Context(), outbox.ListParams{Topic: bad})
		f.RequireField(err, "ListParams.Topic")
		_, err = f.Outbox.Requeue(f.Context(), outbox.RequeueParams{Topic: bad})
		f.RequireField(err, "RequeueParams.Topic")
		f.RequireField(f.Outbox.ForgetGroup(f.Context(), bad), "group")
	})
}

// A message that failed in the very millisecond of the call is requeued, too.
func TestRequeue_AtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for range 20 {
			f.Settle(suite.Settled(outbox.Fail, f.ClaimOne("orders"))...)
			n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{Topic: "orders"})
			f.NoError(err)
			f.Equal(1, n)
			f.Settle(suite.Settled(outbox.Ack, f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Lease: time.Minute})...)...)
		}
	})
}

// A requeue of a topic with many dead letters goes through those of others once, and not again for each batch.
func TestTrap_RequeueBehindManyOthers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const wanted = 2500
		for _, topic := range []string{"others", "orders"} {
			f.EnqueueN(topic, wanted)
			for left := wanted; left > 0; {
				claimed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas(topic), Limit: 1000})
				f.Empty(f.Settle(suite.Settled(outbox.Fail, claimed...)...))
				left -= len(claimed)
			}
		}
		begins := map[string]bool{}
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			arg := fmt.Sprint(s.Args...)
			if _, after, ok := strings.Cut(arg, `"after":`); ok {
				begins[after] = true
			}
			return nil
		}})
		requeued, err := f.NewOutbox(pool).Requeue(f.Context(), outbox.RequeueParams{Topic: "orders"})
		f.NoError(err)
		f.Equal(wanted, requeued)
		f.Len(begins, 3, "each batch but the first begins where another ended")
	})
}
