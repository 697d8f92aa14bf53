package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// sendElsewhere sends the messages to all destinations outside the same outbox. Destinations that have taken them are not
// sent them again while this worker retries the others.
func (w *worker) sendElsewhere(ctx context.Context, sources []outbox.LogMessage) error {
	errs := make([]error, len(w.policy.Destinations))
	return w.whileHeld(ctx, func(ctx context.Context) error {
		var sending sync.WaitGroup
		for i := range w.policy.Destinations {
			if d := &w.policy.Destinations[i]; d.kind != toTopic {
				sending.Go(func() { errs[i] = w.send(ctx, d, &w.sent[i], sources) })
			}
		}
		sending.Wait()
		return errors.Join(errs...)
	})
}

// taken are the messages that a destination has taken and the cursor has not passed. They are identified by id, because a
// restored older database gives the same positions again.
type taken map[outbox.MessageID]struct{}

// send sends what the destination has not taken yet, and records it.
func (w *worker) send(ctx context.Context, d *Destination, sent *taken, all []outbox.LogMessage) (err error) {
	var sources []outbox.LogMessage
	for i := range all {
		if _, known := (*sent)[all[i].ID]; !known {
			sources = append(sources, all[i])
		}
	}
	if len(sources) == 0 {
		return nil
	}
	if d.kind == toStore {
		err = w.store(ctx, d, sources)
	} else {
		messages := make([]*message.Message, len(sources))
		for i := range sources {
			messages[i] = w.policy.published(ctx, &sources[i], d.name)
		}
		err = d.publisher.Publish(d.topic, messages...)
	}
	if err != nil {
		return fmt.Errorf("send to %q: %w", d.name, err)
	}
	*sent = make(taken, len(all)) // the cursor has passed earlier batches
	for i := range all {
		(*sent)[all[i].ID] = struct{}{}
	}
	return nil
}

// store inserts the messages that are not there yet. If two dispatchers insert the same one, the second is refused, and then
// finds it.
func (w *worker) store(ctx context.Context, d *Destination, sources []outbox.LogMessage) error {
	ids := make([]outbox.MessageID, len(sources))
	for i := range sources {
		ids[i] = copyID(w.policy.Name, d.name, sources[i].ID)
	}
	found, err := d.store.Get(ctx, ids...)
	if err != nil {
		return err
	}
	there := make(map[outbox.MessageID]bool, len(found))
	for i := range found {
		there[found[i].ID] = true
	}
	var missing []outbox.Message
	for i := range sources {
		if !there[ids[i]] {
			m := w.policy.stored(&sources[i], d.topic)
			m.ID = ids[i]
			missing = append(missing, m)
		}
	}
	_, err = d.store.Enqueue(ctx, d.store.DB(), missing...)
	return err
}

// whileHeld renews the lease while f runs. When the lease is lost, f's context ends.
func (w *worker) whileHeld(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		ticker := time.NewTicker(w.renewEvery())
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if err := w.renew(ctx); errors.Is(err, outbox.ErrLeaseLost) {
					cancel(err)
					return
				}
			case <-done:
				return
			}
		}
	})
	err := f(ctx)
	close(done)
	renewing.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, outbox.ErrLeaseLost) {
		return cause
	}
	return err
}
