package fanout

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/join"
)

// Headers added to each copy. Copies for publishers also have outbox.HeaderMessageID and, if the message has a stream key,
// outbox.HeaderStreamKey.
const (
	HeaderPolicy   = "fanout_policy"
	HeaderPosition = "fanout_position" // of the source in the log
	HeaderSource   = "fanout_source"   // its message id
	HeaderTopic    = "fanout_topic"    // its topic
	HeaderSlice    = "fanout_slice"    // the interval of its policy's Cadence, if that has one
)

// namespace is the UUID namespace for the ids of copies. It must never change.
var namespace = uuid.MustParse("5b5ff0d4-0a1f-5d6c-9d0e-4f6f1a3b7c21")

// copyID is the same every time a source is copied to a destination.
func copyID(policy, destination string, source outbox.MessageID) outbox.MessageID {
	return outbox.MessageID(uuid.NewSHA1(namespace, []byte(policy+"\x00"+destination+"\x00"+source.String())))
}

func (p *Policy) headers(source *outbox.LogMessage) map[string]string {
	headers := make(map[string]string, len(source.Headers)+5)
	maps.Copy(headers, source.Headers)
	headers[HeaderPolicy] = p.Name
	headers[HeaderPosition] = strconv.FormatInt(source.Position, 10)
	headers[HeaderSource] = source.ID.String()
	headers[HeaderTopic] = source.Topic
	if p.Cadence.Every > 0 {
		headers[HeaderSlice] = strconv.FormatInt(p.Cadence.slice(source.LoggedAt), 10)
	}
	return headers
}

// stored is the copy for an outbox, without an id. When it expires is among its headers, which are stored as they are: as
// ExpiresAt it would be refused if the source is due later than that.
func (p *Policy) stored(source *outbox.LogMessage, topic string) outbox.Message {
	m := source.Message
	m.ID, m.Topic, m.Headers, m.ExpiresAt = outbox.MessageID{}, topic, p.headers(source), time.Time{}
	return m
}

// published is the copy for a publisher.
func (p *Policy) published(ctx context.Context, source *outbox.LogMessage, destination string) *message.Message {
	msg := message.NewMessageWithContext(ctx, source.UUID, source.Payload)
	msg.Metadata = p.headers(source)
	msg.Metadata[outbox.HeaderMessageID] = copyID(p.Name, destination, source.ID).String()
	if source.StreamKey != "" {
		msg.Metadata[outbox.HeaderStreamKey] = source.StreamKey
	}
	if source.CorrelationID != "" && msg.Metadata[base.HeaderCorrelationID] == "" {
		msg.Metadata[base.HeaderCorrelationID] = source.CorrelationID
	}
	return msg
}

// insert enqueues the copies for topics of the same outbox, in log order, and makes them steps of their joins.
func (w *worker) insert(ctx context.Context, tx outbox.Executor, sources []outbox.LogMessage) error {
	var copies []outbox.Message
	steps := make([]*join.ID, len(sources))
	for i := range sources {
		for _, d := range w.policy.Destinations {
			if d.kind == toTopic {
				copies = append(copies, w.policy.stored(&sources[i], d.topic))
			}
		}
		if w.policy.Join == nil {
			continue
		}
		id, ok, err := w.policy.Join(ctx, tx, sources[i])
		if err != nil {
			return err
		}
		if ok {
			steps[i] = &id
		}
	}
	ids, err := w.outbox.Enqueue(ctx, tx, copies...)
	if err != nil || w.policy.Join == nil {
		return err
	}
	each := len(copies) / max(len(sources), 1)
	for i, id := range steps {
		if id == nil {
			continue
		}
		if err := w.attach(ctx, tx, *id, ids[i*each:(i+1)*each]); err != nil {
			return err
		}
	}
	return nil
}

// attach makes copies steps of a join. If the join takes no steps, the copies are sent without it, so that the policy goes
// on.
func (w *worker) attach(ctx context.Context, tx outbox.Executor, id join.ID, copies []outbox.MessageID) error {
	err := w.joins.Attach(ctx, tx, id, copies...)
	if errors.Is(err, join.ErrEnded) || errors.Is(err, join.ErrFull) || errors.Is(err, join.ErrNotFound) {
		w.logger.Error("A join takes no more steps; the messages are sent without it", err, watermill.LogFields{"join_id": id.String()})
		return nil
	}
	return err
}
