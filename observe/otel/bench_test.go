package otel_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/incursa/watermill-outbox/observe/otel"
)

func BenchmarkMiddleware(b *testing.B) {
	for name, sampler := range map[string]sdk.Sampler{"none": sdk.NeverSample(), "all": sdk.AlwaysSample()} {
		b.Run(name, func(b *testing.B) {
			traces := otel.New(otel.Config{TracerProvider: sdk.NewTracerProvider(sdk.WithSampler(sampler))})
			handler := traces.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })
			msg := message.NewMessage("1", nil)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = handler(msg)
			}
		})
	}
}
