package middleware

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

// Inbox makes a handler's effects happen once, however often its message arrives. It works with any subscriber.
//
// The entry of the message, what the handler writes, and the messages that it returns are committed in one transaction of
// the inbox's database, or none of them is. The handler must use that transaction: outbox.TxFrom finds it in the message's
// context, and an outbox Publisher uses it without being told. If the handler returns an error or panics, everything is
// rolled back and the message counts as new when it arrives again. Effects elsewhere are not rolled back.
//
// Once the entry is committed, further deliveries are acknowledged without calling the handler. The messages that it
// returned are returned again: the router publishes them after the commit, so a crash in between loses none, but they may be
// published twice. Messages that the handler publishes through an outbox in the transaction are published once. A message
// with a known key and different content is an inbox.MismatchError, which is permanent. The outbox fails such a message at
// once, but RabbitMQ and others would deliver it again without end: there, put Watermill's poison queue before Inbox:
//
//	poison, err := middleware.PoisonQueueWithFilter(publisher, "poison", outbox.IsPermanent)
//	router.AddMiddleware(poison, once)
//
// The same holds on a subscriber over the inbox's own queue, under the key with which the message was enqueued; there the
// entry is marked when the handler succeeds.
//
// A duplicate that arrives while the first is being handled waits for it, holding a connection of the pool. On SQLite, which
// has one writer, handlers run one after the other; a pool of one connection is enough for handlers that use only the
// transaction.
//
// A handler is called once per delivery. If the database refuses the commit because of a conflict (outbox.IsRetryable), that
// is returned like any error: the message is delivered again, or Watermill's Retry runs all of this again if it comes before
// Inbox. After Inbox it cannot help, because the transaction has failed. Put Inbox last:
//
//	router.AddMiddleware(Outcome, retry.Middleware, once)
//
// exempt lists further topics whose handlers make their own transactions, such as those of Stages; join.DefaultWaitTopic always
// is exempt. Add join.Config.WaitTopic if you have set it. Inbox records nothing of their messages.
//
// It returns an *outbox.FieldError that names a bad field of the Identity, or a nil in.
func Inbox(in *inbox.Inbox, identity inbox.Identity, exempt ...string) (message.HandlerMiddleware, error) {
	if in == nil {
		return nil, field.Bad("in", "is nil; make it with inbox.New")
	}
	if err := identity.Validate(); err != nil {
		return nil, err
	}
	exempt = append([]string{join.DefaultWaitTopic}, exempt...)
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if slices.Contains(exempt, message.SubscribeTopicFromCtx(msg.Context())) {
				return next(msg)
			}
			key, hash, err := identity.Of(msg)
			if err != nil {
				return nil, err
			}
			return once(in, next, msg, key, hash)
		}
	}, nil
}

func once(in *inbox.Inbox, next message.HandlerFunc, msg *message.Message, key inbox.Key, hash inbox.Hash) (produced []*message.Message, err error) {
	received := msg.Context()
	defer msg.SetContext(received)
	// A transaction of its own, whatever the context carries: no one else may commit half of it.
	err = outbox.InTx(outbox.WithTx(received, nil), in.DB(), func(ctx context.Context, tx *sql.Tx) error {
		entry, err := in.Begin(ctx, tx, key, hash)
		if err != nil {
			return err
		}
		if !isDue(received, entry) {
			produced, err = decodeResult(entry.Result)
			return err
		}
		msg.SetContext(ctx)
		if produced, err = next(msg); err != nil {
			return err
		}
		if released(received) {
			return errReleased
		}
		if len(produced) == 0 && entry.First() {
			return nil // Begin has marked it
		}
		result, err := encodeResult(produced)
		if err != nil {
			return err
		}
		return in.SaveResult(ctx, tx, key, result)
	})
	if errors.Is(err, errReleased) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, p := range produced { // published after the transaction
		p.SetContext(outbox.WithTx(p.Context(), nil))
	}
	return produced, nil
}

// isDue says whether the handler is to be called: for a new message, and for one that the inbox's own queue delivers.
func isDue(received context.Context, entry inbox.Entry) bool {
	if entry.First() {
		return true
	}
	delivery, ok := outbox.DeliveryFrom(received)
	return ok && delivery.MessageID() == entry.QueueID && entry.ProcessedAt.IsZero()
}

// errReleased undoes the entry of a message that comes again.
var errReleased = errors.New("the handler has given the message back")

// released says whether the handler gave the message back in a transaction of its own, as join.HandleWait does.
func released(received context.Context) bool {
	delivery, ok := outbox.DeliveryFrom(received)
	return ok && seam.Delivery(delivery).Released()
}

// A producedMessage is a message that a handler returned, as it is stored.
type producedMessage struct {
	UUID     string            `json:"uuid"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Payload  []byte            `json:"payload"`
}

func encodeResult(produced []*message.Message) ([]byte, error) {
	if len(produced) == 0 {
		return nil, nil
	}
	kept := make([]producedMessage, len(produced))
	for i, p := range produced {
		if !utf8.ValidString(p.UUID) {
			return nil, outbox.Permanent(field.Bad("UUID", "is not valid UTF-8"))
		}
		for key, value := range p.Metadata {
			if !utf8.ValidString(key) || !utf8.ValidString(value) {
				return nil, outbox.Permanent(field.Bad("Metadata", "header %q is not valid UTF-8; put bytes into the payload, or encode them", key))
			}
		}
		kept[i] = producedMessage{p.UUID, p.Metadata, p.Payload}
	}
	result, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("encode the messages of the handler: %w", err)
	}
	return result, nil
}

func decodeResult(result []byte) ([]*message.Message, error) {
	if len(result) == 0 {
		return nil, nil
	}
	var kept []producedMessage
	if err := json.Unmarshal(result, &kept); err != nil {
		return nil, fmt.Errorf("decode the messages that the handler has returned: %w", err)
	}
	produced := make([]*message.Message, len(kept))
	for i, k := range kept {
		produced[i] = message.NewMessage(k.UUID, k.Payload)
		for key, value := range k.Metadata {
			produced[i].Metadata.Set(key, value)
		}
	}
	return produced, nil
}
