package otel

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	outbox "github.com/incursa/watermill-outbox"
)

var errPanic = errors.New("the handler panicked")

// Middleware traces a handler, whose messages may come from an outbox or from a broker. The span is in the message's context,
// and in that of the messages that the handler returns. Add it after middleware.Outcome, so that it sees the handler's error.
func (t *Traces) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		before := msg.Context()
		ctx := before
		var options []trace.SpanStartOption
		if created := t.created(msg); created.IsValid() {
			if t.config.ContinueTrace {
				ctx = trace.ContextWithRemoteSpanContext(ctx, created)
			} else {
				options = append(options, trace.WithLinks(trace.Link{SpanContext: created}))
			}
		}
		topic, attributes := message.SubscribeTopicFromCtx(before), func() []attribute.KeyValue { return ofMessage(msg) }
		if d, ours := outbox.DeliveryFrom(before); ours {
			topic, attributes = d.Topic(), func() []attribute.KeyValue { return append(ofMessage(msg), ofDelivery(d)...) }
		}
		ctx, span := t.start(ctx, process, topic, trace.SpanKindConsumer, attributes, options...)
		msg.SetContext(ctx)
		returned := false
		defer func() {
			if !returned {
				err = errPanic
			}
			fail(span, err)
			span.End()
			msg.SetContext(before)
		}()
		produced, err = h(msg)
		returned = true
		for _, p := range produced {
			inherit(p, span)
		}
		return produced, err
	}
}

func ofDelivery(d *outbox.Delivery) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attempt.Int(d.Attempt())}
	if d.Group() != "" {
		attributes = append(attributes, consumerGroup.String(d.Group()))
	}
	return attributes
}

// inherit puts a span into the context of a message that has none.
func inherit(msg *message.Message, span trace.Span) {
	if ctx := msg.Context(); !trace.SpanContextFromContext(ctx).IsValid() {
		msg.SetContext(trace.ContextWithSpan(ctx, span))
	}
}
