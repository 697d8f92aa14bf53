package otel

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Publisher returns a publisher that traces each Publish of another. The span is a child of that in the context of the first
// message. Of several messages each also has a span "create", whose context it carries, and to which the span of the call is
// linked. Messages that carry a context already are linked, too, and keep it. A forwarder's messages do: with
// Config.ContinueTrace the span of a single one is a child of what it carries.
func (t *Traces) Publisher(publisher message.Publisher) message.Publisher {
	return tracedPublisher{publisher, t}
}

type tracedPublisher struct {
	message.Publisher
	traces *Traces
}

// Publish implements message.Publisher.
func (p tracedPublisher) Publish(topic string, messages ...*message.Message) (err error) {
	t := p.traces
	if len(messages) == 0 {
		return p.Publisher.Publish(topic)
	}
	each := len(messages) > 1 && !t.config.NoCreateSpans
	var links []trace.Link
	var blank []*message.Message // without a context yet
	for _, msg := range messages {
		created := t.created(msg)
		switch {
		case created.IsValid():
		case each:
			ctx, span := t.start(msg.Context(), create, topic, trace.SpanKindProducer, func() []attribute.KeyValue { return ofMessage(msg) })
			t.inject(ctx, msg)
			created = span.SpanContext()
			span.End()
		default:
			blank = append(blank, msg)
			continue
		}
		links = append(links, trace.Link{SpanContext: created})
	}
	kind := trace.SpanKindClient
	if len(blank) > 0 {
		kind = trace.SpanKindProducer // its context is that of messages
	}
	attributes := func() []attribute.KeyValue {
		if len(messages) == 1 {
			return ofMessage(messages[0])
		}
		return []attribute.KeyValue{batchCount.Int(len(messages))}
	}
	parent := messages[0].Context()
	if t.config.ContinueTrace && len(messages) == 1 && len(links) == 1 && !trace.SpanContextFromContext(parent).IsValid() {
		parent, links = trace.ContextWithRemoteSpanContext(parent, links[0].SpanContext), nil
	}
	ctx, span := t.start(parent, send, topic, kind, attributes, trace.WithLinks(links...))
	defer span.End()
	for _, msg := range blank {
		t.inject(ctx, msg)
	}
	err = p.Publisher.Publish(topic, messages...)
	fail(span, err)
	return err
}
