package otel

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"

	outbox "github.com/incursa/watermill-outbox"
)

var errPanic = errors.New("the handler panicked")

// Middleware traces a handler, whose messages may come from an outbox or from a broker. The span is in the message's context,
// and in that of the messages that the handler returns. Add it after middleware.Outcome, so that it sees the handler's error.
func (t *Traces) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		before := msg.Context()
		topic := message.SubscribeTopicFromCtx(before)
		ctx, attributes := before, ofMessage(msg)
		var options []trace.SpanStartOption
		if created := t.created(msg); created.IsValid() {
			if t.config.ContinueTrace {
				ctx = trace.ContextWithRemoteSpanContext(ctx, created)
			} else {
				options = append(options, trace.WithLinks(trace.Link{SpanContext: created}))
			}
		}
		if d, ok := outbox.DeliveryFrom(ctx); ok {
			topic = d.Topic()
			attributes = append(attributes, attempt.Int(d.Attempt()))
			if d.Group() != "" {
				attributes = append(attributes, consumerGroup.String(d.Group()))
			}
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

// inherit puts a span into the context of a message that has none.
func inherit(msg *message.Message, span trace.Span) {
	if ctx := msg.Context(); !trace.SpanContextFromContext(ctx).IsValid() {
		msg.SetContext(trace.ContextWithSpan(ctx, span))
	}
}
