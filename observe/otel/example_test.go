package otel_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/incursa/watermill-outbox/observe/otel"
)

func Example() {
	exporter := tracetest.NewInMemoryExporter() // in a service, one that sends spans to a collector
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	traces := otel.New(otel.Config{TracerProvider: provider})

	publisher := traces.Publisher(&wire{}) // in a service, that of outbox.NewPublisher
	msg := message.NewMessage("1", []byte("order 7"))
	if err := publisher.Publish("orders", msg); err != nil {
		fmt.Println(err)
		return
	}
	handler := traces.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil }) // on a router
	if _, err := handler(msg); err != nil {
		fmt.Println(err)
		return
	}
	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name, span.SpanKind, "links:", len(span.Links))
	}
	// Output:
	// send orders producer links: 0
	// process consumer links: 1
}
