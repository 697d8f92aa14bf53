package otel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

// Config configures Traces.
type Config struct {
	// TracerProvider makes the spans. Defaults to the global one, as it is when New is called.
	TracerProvider trace.TracerProvider

	// Propagator writes and reads the context in the metadata of messages. Defaults to W3C's traceparent and tracestate.
	Propagator propagation.TextMapPropagator

	// System is the attribute messaging.system. Defaults to "outbox".
	System string

	// ContinueTrace makes the span of a handler, and that of a forwarder that publishes a single message, a child of the span that
	// created the message, in its trace, instead of linking the two. Defaults to false.
	ContinueTrace bool

	// NoCreateSpans leaves out the spans of the single messages when several are published at once: all then have the context
	// of the one span of the call. Defaults to false.
	NoCreateSpans bool
}

// Traces makes spans. It is safe for concurrent use.
type Traces struct {
	config Config
	tracer trace.Tracer
	starts sync.Map // spanKey → *spanStart
	known  atomic.Int64
}

// A spanKey is what spans have in common.
type spanKey struct {
	op          operation
	destination string
	kind        trace.SpanKind
}

// A spanStart is their name and what a sampler knows of them.
type spanStart struct {
	name    string
	options []trace.SpanStartOption
}

// maxStarts bounds what is remembered: there may be a topic for each customer.
const maxStarts = 1000

// New returns traces.
func New(config Config) *Traces {
	if config.TracerProvider == nil {
		config.TracerProvider = otel.GetTracerProvider()
	}
	if config.Propagator == nil {
		config.Propagator = propagation.TraceContext{}
	}
	if config.System == "" {
		config.System = "outbox"
	}
	return &Traces{config: config, tracer: config.TracerProvider.Tracer(scope)}
}

// start begins a span named as the conventions want it; the destination may be empty. Attributes are given to spans that are
// recorded alone: a sampler that drops most of them makes most of them cost little.
func (t *Traces) start(ctx context.Context, op operation, destination string, kind trace.SpanKind,
	attributes func() []attribute.KeyValue, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	s := t.startOf(spanKey{op, destination, kind})
	all := s.options
	if len(options) > 0 {
		all = slices.Concat(all, options)
	}
	ctx, span := t.tracer.Start(ctx, s.name, all...)
	if span.IsRecording() {
		span.SetAttributes(attributes()...)
	}
	return ctx, span
}

func (t *Traces) startOf(key spanKey) *spanStart {
	if s, known := t.starts.Load(key); known {
		return s.(*spanStart) //nolint:errcheck // nothing else is in it
	}
	name := key.op.name
	attributes := []attribute.KeyValue{system.String(t.config.System), operationName.String(key.op.name), operationType.String(key.op.kind)}
	if key.destination != "" {
		name += " " + key.destination
		attributes = append(attributes, destinationName.String(key.destination))
	}
	s := &spanStart{name, []trace.SpanStartOption{trace.WithSpanKind(key.kind), trace.WithAttributes(attributes...)}}
	if t.known.Add(1) <= maxStarts {
		t.starts.Store(key, s)
	}
	return s
}

// created is the context of the span that created a message; it may be invalid.
func (t *Traces) created(msg *message.Message) trace.SpanContext {
	return trace.SpanContextFromContext(t.config.Propagator.Extract(context.Background(), propagation.MapCarrier(msg.Metadata)))
}

func (t *Traces) inject(ctx context.Context, msg *message.Message) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	t.config.Propagator.Inject(ctx, propagation.MapCarrier(msg.Metadata))
}

func ofMessage(msg *message.Message) []attribute.KeyValue {
	attributes := append(make([]attribute.KeyValue, 0, 5), messageID.String(msg.UUID), bodySize.Int(len(msg.Payload)))
	if id := msg.Metadata.Get(base.HeaderCorrelationID); id != "" {
		attributes = append(attributes, conversationID.String(id))
	}
	return attributes
}

// fail marks a span; a nil error does nothing.
func fail(span trace.Span, err error) {
	if err == nil {
		return
	}
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(errorType.String(typeOf(err)))
}

// typeOf tells few errors apart, because it may become a label.
func typeOf(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case outbox.IsPermanent(err):
		return "permanent"
	case outbox.IsRetryable(err):
		return "retryable"
	default:
		return errorTypeUnknown
	}
}
