package inbox

import (
	"context"
	"fmt"
	"slices"

	outbox "github.com/incursa/watermill-outbox"
)

// A Received message is to be handled later.
type Received struct {
	Key Key

	// Hash tells different contents apart. Defaults to the SHA-256 of the payload.
	Hash Hash

	// Message is what the handler gets from the queue. Its Topic defaults to Key.Handler, its ID to a new one.
	Message outbox.Message
}

// Enqueue puts the messages that were not received before into the queue, all or none, and returns their ids there, in
// order; the id of a known message is zero. If the content under a key differs from what was received before, it returns a
// *MismatchError and writes nothing. A key that occurs several times in one call counts as one message.
//
// On a *sql.DB it makes its own transaction, and may return outbox.ErrUnknownOutcome; on a *sql.Tx or *sql.Conn it runs in
// the caller's, which it never ends, and which a duplicate leaves usable. Nil is the transaction of the context (outbox.InTx,
// outbox.WithTx), or else one of its own on the Inbox's *sql.DB; an *outbox.FieldError says that InTx began that of the context
// on another *sql.DB.
func (in *Inbox) Enqueue(ctx context.Context, x outbox.Executor, received ...Received) ([]outbox.MessageID, error) {
	received = slices.Clone(received)
	for i := range received {
		if r := &received[i]; r.Hash == (Hash{}) {
			r.Hash = HashOf(r.Message.Payload)
		}
	}
	return in.enqueue(ctx, x, received)
}

// enqueue takes the hashes as they are: one of zero may be what Identity.Hash returned.
func (in *Inbox) enqueue(ctx context.Context, x outbox.Executor, received []Received) ([]outbox.MessageID, error) {
	if len(received) == 0 {
		return nil, nil
	}
	wanted, keys, err := in.prepare(received)
	if err != nil {
		return nil, err
	}
	var ids []outbox.MessageID
	err = in.inside.InTx(ctx, x, func(ctx context.Context, x outbox.Executor) error {
		ids = make([]outbox.MessageID, len(received)) // anew each time the transaction is run
		var fresh []outbox.Message
		for from := 0; from < len(keys); from += maxBatch {
			entries, err := in.add(ctx, x, keys[from:min(from+maxBatch, len(keys))])
			if err != nil {
				return err
			}
			for i := range entries {
				r := &wanted[from+i]
				if err := in.compare(&entries[i], r.Hash); err != nil {
					return err
				}
				if entries[i].First() {
					ids[r.position] = r.Message.ID
					fresh = append(fresh, r.Message)
				}
			}
		}
		_, err := in.queue.Enqueue(ctx, x, fresh...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// A candidate is the first message with its key in a call.
type candidate struct {
	Received
	position int // in the call
}

// prepare validates the messages, sets their defaults and drops those that repeat a key.
func (in *Inbox) prepare(received []Received) ([]candidate, []wireKey, error) {
	var wanted []candidate
	var keys []wireKey
	known := map[Key]int{}
	for i, r := range received {
		if err := in.complete(&r); err != nil {
			if len(received) > 1 {
				err = fmt.Errorf("message %d of %d: %w", i+1, len(received), err)
			}
			return nil, nil, err
		}
		if first, repeated := known[r.Key]; repeated {
			if err := in.compare(&Entry{Key: r.Key, Hash: wanted[first].Hash}, r.Hash); err != nil {
				return nil, nil, err
			}
			continue
		}
		known[r.Key] = len(wanted)
		wire := r.Key.wire(len(keys) % maxBatch)
		wire.Hash, wire.QueueID = r.Hash.String(), r.Message.ID.String()
		wanted, keys = append(wanted, candidate{r, i}), append(keys, wire)
	}
	return wanted, keys, nil
}

func (in *Inbox) complete(r *Received) (err error) {
	if err := r.Key.validate(); err != nil {
		return err
	}
	if r.Message.Topic == "" {
		r.Message.Topic = r.Key.Handler
	}
	if r.Message.ID == (outbox.MessageID{}) {
		r.Message.ID, err = in.queue.NewID()
	}
	return err
}
