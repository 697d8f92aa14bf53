package main

import (
	"context"
	"encoding/json"

	"github.com/ThreeDotsLabs/watermill/message"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/observe/otel"
	"github.com/incursa/watermill-outbox/observe/prometheus"
)

// measureObserved measures what telemetry costs a drain through a router whose handler decodes an order: metrics for Prometheus
// or through OpenTelemetry, metrics with one trace in a hundred, and with every trace, whose spans are made and thrown away.
// Beside each is the product without telemetry. The overhead is of CPU time, which other programs on the machine change less
// than they change speed. That of a server is not counted, so that the share of the whole is smaller.
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
		plain := draining{messages: b.count(100_000), inFlight: 2000, router: true, middleware: decoding}
		observed := plain
		observed.hooks = telemetry.hooks
		if telemetry.middleware != nil {
			observed.middleware = func(h message.HandlerFunc) message.HandlerFunc { return telemetry.middleware(decoding(h)) }
		}
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

// decoding is what about every handler does first. It also grows the stack of the message's goroutine: with a handler that does
// nothing at all, telemetry would be charged for that.
func decoding(h message.HandlerFunc) message.HandlerFunc {
	order := []byte(`{"id": "6a4e1c2f", "customer": "anna@example.com", "total": 4990, "lines": [{"sku": "A-1", "n": 2}, {"sku": "B-7", "n": 1}]}`)
	return func(msg *message.Message) ([]*message.Message, error) {
		var decoded struct {
			ID, Customer string
			Total        int
			Lines        []struct {
				SKU string
				N   int
			}
		}
		if err := json.Unmarshal(order, &decoded); err != nil {
			return nil, err
		}
		return h(msg)
	}
}
