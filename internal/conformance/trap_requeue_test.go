package conformance

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// A handler that fails again at once made one call requeue more messages than had failed when it began.
func TestTrap_RequeueOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 5000
		f.enqueueN("orders", n)
		f.exec("UPDATE {outbox} SET {created_at} = {past}")
		f.exec("UPDATE {outbox_state} SET {status} = 3, {processed_at} = {past}")
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() { // fails what is ready, as fast as it can
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				claimed, err := f.outbox.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders"), Limit: 200})
				if err == nil {
					_, err = f.outbox.Settle(f.ctx(), f.db.DB, settled(outbox.Fail, claimed...))
				}
				if err != nil {
					t.Errorf("the worker: %v", err)
					return
				}
			}
		}()
		requeued, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{All: true})
		close(stop)
		take(f, stopped, "the end of the worker")
		f.NoError(err)
		f.Equal(n, requeued)
	})
}

func TestRequeue_NoIDsAreNone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		f.settle(settled(outbox.Fail, c)...)
		for _, params := range []outbox.RequeueParams{{IDs: []outbox.MessageID{}}, {IDs: []outbox.MessageID{}, Topic: "orders"}} {
			n, err := f.outbox.Requeue(f.ctx(), params)
			f.NoError(err)
			f.Zero(n)
		}
		for _, params := range []outbox.RequeueParams{{}, {All: true, Topic: "orders"}, {All: true, IDs: []outbox.MessageID{}}} {
			_, err := f.outbox.Requeue(f.ctx(), params)
			f.requireField(err, "RequeueParams.All")
		}
		f.Equal(int(outbox.Failed), f.row(c.ID).status)
		n, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{All: true})
		f.NoError(err)
		f.Equal(1, n)
	})
}

// What cannot be a topic or a group was an error of the database.
func TestTrap_NULInArguments(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const bad = "or\x00ders"
		_, err := f.outbox.Failed(f.ctx(), outbox.ListParams{Topic: bad})
		f.requireField(err, "ListParams.Topic")
		_, err = f.outbox.Requeue(f.ctx(), outbox.RequeueParams{Topic: bad})
		f.requireField(err, "RequeueParams.Topic")
		f.requireField(f.outbox.ForgetGroup(f.ctx(), bad), "group")
	})
}

// A message that failed in the very millisecond of the call is requeued, too.
func TestRequeue_AtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for range 20 {
			f.settle(settled(outbox.Fail, f.claimOne("orders"))...)
			n, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{Topic: "orders"})
			f.NoError(err)
			f.Equal(1, n)
			f.settle(settled(outbox.Ack, f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Lease: time.Minute})...)...)
		}
	})
}
