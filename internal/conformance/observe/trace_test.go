package observe_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/kafka"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/middleware"
	"github.com/incursa/watermill-outbox/observe/otel"
)

// An order is placed in a request, handled, and forwarded to Kafka, where another service consumes it through its inbox. All
// of that is one trace, and each span is the child of what caused it.
func TestOneTraceFromPublishToTheConsumer(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		exporter := tracetest.NewInMemoryExporter()
		provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
		p := &pipeline{Outbox: o, traces: otel.New(otel.Config{TracerProvider: provider, ContinueTrace: true})}
		p.start()

		request, span := provider.Tracer("shop").Start(t.Context(), "POST /orders")
		o.NoError(outbox.InTx(request, o.DB.DB, func(ctx context.Context, _ *sql.Tx) error {
			msg := message.NewMessage("order-7", []byte("7"))
			msg.SetContext(ctx)
			return p.publisher.Publish("orders", msg)
		}))
		span.End()
		p.consume()

		chain := []string{"POST /orders", "send orders", "process orders", "send parcels", "process parcels"}
		var spans map[string]tracetest.SpanStub
		require.Eventually(o.T, func() bool {
			spans = spansByName(exporter)
			_, settled := spans["settle"] // it ends after the commit that others see
			return settled
		}, testoutbox.Patience, time.Millisecond)
		for i, name := range chain {
			o.Contains(spans, name)
			o.Equal(span.SpanContext().TraceID(), spans[name].SpanContext.TraceID(), name)
			if i > 0 {
				o.Equal(spans[chain[i-1]].SpanContext.SpanID(), spans[name].Parent.SpanID(), name)
			}
		}
		relayed := spans["relay parcels"]
		o.Equal(trace.SpanKindClient, relayed.SpanKind)
		o.Equal(spans["send parcels"].SpanContext.SpanID(), relayed.Parent.SpanID())
		o.Contains(spans, "receive orders")
	})
}

// spansByName tells the second sending of a message, by the forwarder, from the first.
func spansByName(exporter *tracetest.InMemoryExporter) map[string]tracetest.SpanStub {
	named := map[string]tracetest.SpanStub{}
	for _, s := range exporter.GetSpans() {
		name := s.Name
		if name == "send parcels" && s.SpanKind == trace.SpanKindClient {
			name = "relay parcels"
		}
		named[name] = s
	}
	return named
}

// A pipeline is all that a message passes through.
type pipeline struct {
	*testoutbox.Outbox
	traces    *otel.Traces
	publisher message.Publisher
	brokers   []string
}

func (p *pipeline) start() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "parcels"))
	p.NoError(err)
	p.T.Cleanup(cluster.Close)
	p.brokers = cluster.ListenAddrs()
	own, err := outbox.NewPublisher(p.DB.DB, outbox.PublisherConfig{Dialect: testoutbox.Dialect(p.DB.Name), Schema: p.DB.Schema}, nil)
	p.NoError(err)
	p.publisher = p.traces.Publisher(own)

	config := p.Subscriber()
	config.Hooks = p.traces.Hooks()
	subscriber, err := outbox.NewSubscriber(p.DB.DB, config, nil)
	p.NoError(err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	p.NoError(err)
	router.AddMiddleware(middleware.Outcome, p.traces.Middleware)
	router.AddHandler("pack", "orders", subscriber, "parcels", p.publisher, func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("parcel-"+msg.UUID, msg.Payload)}, nil
	})
	p.run(func() error { return router.Run(context.Background()) }, router.Close)

	broker, err := kafka.NewPublisher(kafka.Config{Brokers: p.brokers}, nil)
	p.NoError(err)
	p.T.Cleanup(func() { p.NoError(broker.Close()) })
	relay, err := forwarder.New(p.DB.DB, p.traces.Publisher(broker), forwarder.Config{Topics: []string{"parcels"}, Subscriber: p.Subscriber()}, nil)
	p.NoError(err)
	p.run(func() error { return relay.Run(context.Background()) }, relay.Close)
}

func (p *pipeline) run(run, stop func() error) {
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	p.T.Cleanup(func() {
		p.NoError(stop())
		p.NoError(<-ended)
	})
}

// consume handles one message from Kafka, in the transaction of the inbox.
func (p *pipeline) consume() {
	config := inbox.Config{Dialect: testoutbox.Dialect(p.DB.Name), Schema: p.DB.Schema}
	p.NoError(inbox.Migrate(p.T.Context(), p.DB.DB, config))
	in, err := inbox.New(p.DB.DB, config, nil)
	p.NoError(err)
	once, err := middleware.Inbox(in, inbox.Identity{Source: "shop", Handler: "ship"})
	p.NoError(err)
	client, err := kgo.NewClient(kgo.SeedBrokers(p.brokers...), kgo.ConsumeTopics("parcels"))
	p.NoError(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(p.T.Context(), testoutbox.Patience)
	defer cancel()
	fetches := client.PollFetches(ctx)
	p.NoError(fetches.Err())
	records := fetches.Records()
	p.Len(records, 1)
	local := gochannel.NewGoChannel(gochannel.Config{}, nil)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	p.NoError(err)
	router.AddMiddleware(middleware.Outcome, p.traces.Middleware, once)
	handled := make(chan bool, 1)
	router.AddConsumerHandler("ship", "parcels", local, func(msg *message.Message) error {
		_, inTx := outbox.TxFrom(msg.Context())
		handled <- inTx && trace.SpanContextFromContext(msg.Context()).IsValid()
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	p.NoError(local.Publish("parcels", kafka.DefaultMarshaler{}.Unmarshal(records[0])))
	p.True(<-handled)
	p.NoError(router.Close())
	p.NoError(<-ended)
	require.Eventually(p.T, func() bool { return p.Count(outbox.Done) == 2 }, testoutbox.Patience, time.Millisecond)
}
