package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/observe/otel"
	"github.com/incursa/watermill-outbox/observe/prometheus"
)

// measureObserved measures what telemetry costs a drain through a router: metrics for Prometheus or through OpenTelemetry,
// metrics with one trace in a hundred, and with every trace, whose spans are made and thrown away. Beside each is the product
// without telemetry. The overhead is of CPU time, which other programs on the machine change less than they change speed.
// That of a server is not counted, so that the share of the whole is smaller.
func measureObserved(ctx context.Context, b *bench) (results []result, err error) {
	metrics, err := prometheus.New(prometheus.Config{})
	if err != nil {
		return nil, err
	}
	reader := sdkmetric.NewManualReader()
	measured, err := otel.NewMetrics(otel.MetricsConfig{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		return nil, err
	}
	traced := func(sampler sdktrace.Sampler) message.HandlerMiddleware {
		return otel.New(otel.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))}).Middleware
	}
	for _, telemetry := range []struct {
		of         string
		hooks      outbox.Hooks
		middleware message.HandlerMiddleware
	}{
		{"metrics", metrics.Hooks(), nil},
		{"metrics through OpenTelemetry", measured.Hooks(), nil},
		{"metrics and 1 % of traces", metrics.Hooks(), traced(sdktrace.TraceIDRatioBased(0.01))},
		{"metrics and all traces", metrics.Hooks(), traced(sdktrace.AlwaysSample())},
	} {
		plain := draining{messages: b.count(100_000), inFlight: 2000, router: true}
		observed := plain
		observed.hooks, observed.middleware = telemetry.hooks, telemetry.middleware
		prepare := func(ctx context.Context) error { return b.fill(ctx, plain.messages, 1, false) }
		without, with, err := b.compare(ctx, prepare, plain.side(b, plain.product), observed.side(b, observed.product))
		if err != nil {
			return nil, err
		}
		r := perSecond(with[0], without[0])
		r.Of, r.MaxInFlight = "with "+telemetry.of, plain.inFlight
		r.CPU, r.BareCPU = round(with[1]), round(without[1])
		r.Overhead = round(100 * (with[1]/without[1] - 1))
		results = append(results, r)
	}
	return results, nil
}
