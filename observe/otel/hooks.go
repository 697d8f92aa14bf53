package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	outbox "github.com/incursa/watermill-outbox"
)

// Hooks return hooks that make a span of each claim that took something or failed, and of each batch of settlements. They are
// traces of their own: a claim serves messages of many.
func (t *Traces) Hooks() outbox.Hooks {
	return outbox.Hooks{OnClaim: t.onClaim, OnSettle: t.onSettle, OnGroupRead: t.onGroupRead}
}

func (t *Traces) onClaim(e outbox.ClaimEvent) {
	topic := ""
	if len(e.Topics) == 1 {
		for topic = range e.Topics { // the only one
		}
	}
	t.past(receive, topic, e.Store, e.Took, e.Err, batchCount.Int(e.Messages))
}

func (t *Traces) onSettle(e outbox.SettleEvent) {
	count := e.Busy
	for _, n := range e.Outcomes {
		count += n
	}
	t.past(settle, "", e.Store, e.Took, e.Err, batchCount.Int(count), refused.Int(e.Refused))
}

func (t *Traces) onGroupRead(e outbox.GroupReadEvent) {
	if e.Messages > 0 || e.Err != nil {
		t.past(receive, e.Topic, e.Store, e.Took, e.Err, batchCount.Int(e.Messages), consumerGroup.String(e.Group))
	}
}

// past makes a span of something that has just ended.
func (t *Traces) past(op operation, topic, of string, took time.Duration, err error, attributes ...attribute.KeyValue) {
	ended := time.Now()
	_, span := t.start(context.Background(), op, topic, trace.SpanKindClient, func() []attribute.KeyValue {
		if of == "" {
			return attributes
		}
		return append(attributes, store.String(of))
	}, trace.WithTimestamp(ended.Add(-took)))
	fail(span, err)
	span.End(trace.WithTimestamp(ended))
}
