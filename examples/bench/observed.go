package main

import (
	"context"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/incursa/watermill-outbox/observe/otel"
	"github.com/incursa/watermill-outbox/observe/prometheus"
)

// measureObserved measures what telemetry costs a drain through a router: metrics, metrics with one trace in a hundred, and
// with every trace, whose spans are made and thrown away. Beside each is the product without telemetry.
func measureObserved(ctx context.Context, b *bench) (results []result, err error) {
	for _, telemetry := range []struct {
		of      string
		sampler sdk.Sampler
	}{
		{"metrics", nil},
		{"metrics and 1 % of traces", sdk.TraceIDRatioBased(0.01)},
		{"metrics and all traces", sdk.AlwaysSample()},
	} {
		plain := draining{messages: b.count(100_000), inFlight: 2000, router: true}
		observed := plain
		metrics, err := prometheus.New(prometheus.Config{})
		if err != nil {
			return nil, err
		}
		observed.hooks = metrics.Hooks()
		if telemetry.sampler != nil {
			provider := sdk.NewTracerProvider(sdk.WithSampler(telemetry.sampler))
			traces := otel.New(otel.Config{TracerProvider: provider})
			observed.middleware = traces.Middleware
		}
		prepare := func(ctx context.Context) error { return b.fill(ctx, plain.messages, 1, false) }
		bares, products, err := b.compare(ctx, prepare, plain.side(b, plain.product), observed.side(b, observed.product))
		if err != nil {
			return nil, err
		}
		r := perSecond(products[0], bares[0])
		r.Of, r.MaxInFlight = "with "+telemetry.of, plain.inFlight
		results = append(results, r)
	}
	return results, nil
}
