// Package tracing follows what a request sets off, through the outboxes, the broker and the inboxes to the mail, in one trace.
package tracing

import (
	"context"
	"fmt"
	"maps"
	"os"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	outbox "github.com/incursa/watermill-outbox"
)

// Propagation is how a trace travels: W3C's headers, in requests and in messages.
var Propagation = propagation.TraceContext{}

// FromEnvironment sends spans by OTLP over HTTP, as OpenTelemetry's environment variables say. Without an address of a
// collector, in OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, there are none. stop sends what is left.
func FromEnvironment(ctx context.Context, service string) (provider trace.TracerProvider, stop func(context.Context) error, err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("export traces: %w", err)
	}
	origin, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName(service)), resource.WithFromEnv()) // OTEL_SERVICE_NAME wins
	if err != nil {
		return nil, nil, fmt.Errorf("say where traces are from: %w", err)
	}
	started := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(origin))
	return started, started.Shutdown, nil
}

// Carry gives messages the trace of what enqueues them. An outbox.Publisher in otel.Traces.Publisher does it itself.
func Carry(ctx context.Context, messages []outbox.Message) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	for i := range messages {
		headers := maps.Clone(messages[i].Headers)
		if headers == nil {
			headers = map[string]string{}
		}
		Propagation.Inject(ctx, propagation.MapCarrier(headers))
		messages[i].Headers = headers
	}
}
