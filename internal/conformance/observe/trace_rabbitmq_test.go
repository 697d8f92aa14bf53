package observe_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	correlation "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	configs "github.com/incursa/watermill-outbox/forwarder/amqp/wmamqp"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/middleware"
	"github.com/incursa/watermill-outbox/observe/otel"
)

// docs/telemetry.md shows what TestATraceFromRequestToInbox draws.
const page = "../../../docs/telemetry.md"

// An order is placed by a request over HTTP, handled by the shop, forwarded to RabbitMQ by a relay, and handled through the
// inbox of another service. Each span has its name, kind, attributes, parent and links.
func TestATraceFromRequestToInbox(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		p := newTracedPath(o)
		p.start()
		p.post("order-7")
		p.handled(1)

		spans := p.spans(8) // with a claim and a batch of settlements
		picture := draw(spans)
		shown, err := os.ReadFile(page)
		o.NoError(err)
		o.True(strings.Contains(string(shown), "```text\n"+picture+"```\n"), "docs/telemetry.md shows another picture than:\n%s", picture)

		request := p.find(spans, "shop", "POST /orders", trace.SpanKindServer)
		sent := p.find(spans, "shop", "send orders", trace.SpanKindProducer)
		handled := p.find(spans, "shop", "process orders", trace.SpanKindConsumer)
		produced := p.find(spans, "shop", "send parcels", trace.SpanKindProducer)
		relayed := p.find(spans, "relay", "send parcels", trace.SpanKindClient)
		consumed := p.find(spans, "shipping", "process parcels", trace.SpanKindConsumer)
		p.stands(request, tracetest.SpanStub{}, nil)
		p.stands(sent, request, nil)
		p.stands(handled, tracetest.SpanStub{}, &sent)
		p.stands(produced, handled, nil)
		p.stands(relayed, tracetest.SpanStub{}, &produced)
		p.stands(consumed, tracetest.SpanStub{}, &produced)

		p.says(sent, "outbox", "send", "orders", "order-7")
		p.says(handled, "outbox", "process", "orders", "order-7", attribute.Int("outbox.delivery.attempt", 1))
		p.says(produced, "outbox", "send", "parcels", "parcel-order-7")
		p.says(relayed, "rabbitmq", "send", "parcels", "parcel-order-7")
		p.says(consumed, "rabbitmq", "process", "parcels", "parcel-order-7")
	})
}

// Of messages that are published together, each has the context of its own creation, through table, forwarder and broker,
// however they were batched on the way.
func TestLinksAcrossBatches(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		p := newTracedPath(o)
		p.start()
		p.post("a", "b", "c")
		p.handled(3)
		spans := p.ended(6, trace.SpanKindConsumer)
		created := map[string]trace.SpanContext{} // by the message's id
		for _, s := range spans {
			id := valueOf(s, "messaging.message.id").AsString()
			switch s.Name {
			case "create orders", "send " + p.queue:
				if s.SpanKind == trace.SpanKindProducer {
					created[id] = s.SpanContext
				}
			case "send orders":
				o.Equal(trace.SpanKindClient, s.SpanKind)
				o.Len(s.Links, 3)
				o.EqualValues(3, valueOf(s, "messaging.batch.message_count").AsInt64())
			}
		}
		o.Len(created, 6, "three orders, three parcels")
		relayed := 0
		for _, s := range spans {
			switch {
			case s.SpanKind == trace.SpanKindConsumer:
				o.False(s.Parent.IsValid(), s.Name)
				o.Len(s.Links, 1)
				o.True(linked(s, created[valueOf(s, "messaging.message.id").AsString()]), s.Name)
			case serviceOf(s) == "relay":
				relayed += len(s.Links)
				o.False(s.Parent.IsValid())
			}
		}
		o.Equal(3, relayed)
	})
}

// A tracedPath is all that a message passes through, from an HTTP request to a handler behind RabbitMQ.
type tracedPath struct {
	*testoutbox.Outbox
	exporter *tracetest.InMemoryExporter
	queue    string // named so that nobody else uses it
	broker   string
	shop     *httptest.Server
	done     chan string // ids of messages that were handled behind the broker
}

func newTracedPath(o *testoutbox.Outbox) *tracedPath {
	p := &tracedPath{Outbox: o, exporter: tracetest.NewInMemoryExporter(), broker: testbroker.URL(o.T),
		queue: "parcels-" + strings.ToLower(rand.Text()[:10]), done: make(chan string, 10)}
	o.T.Cleanup(func() {
		conn, err := amqp091.Dial(p.broker)
		o.NoError(err)
		ch, err := conn.Channel()
		o.NoError(err)
		_, err = ch.QueueDelete(p.queue, false, false, false)
		o.NoError(err)
		o.NoError(conn.Close())
	})
	return p
}

// provider is that of a service.
func (p *tracedPath) provider(service string) *sdk.TracerProvider {
	of := resource.NewSchemaless(attribute.String("service.name", service))
	return sdk.NewTracerProvider(sdk.WithSyncer(p.exporter), sdk.WithResource(of))
}

func (p *tracedPath) start() {
	in := inbox.Config{Dialect: testoutbox.Dialect(p.DB.Name), Schema: p.DB.Schema}
	p.NoError(inbox.Migrate(p.T.Context(), p.DB.DB, in))
	p.startShipping(in)
	p.startRelay()
	p.startShop()
}

// startShop serves HTTP, and turns orders into parcels.
func (p *tracedPath) startShop() {
	provider := p.provider("shop")
	traces := otel.New(otel.Config{TracerProvider: provider})
	own, err := outbox.NewPublisher(p.DB.DB, outbox.PublisherConfig{Dialect: testoutbox.Dialect(p.DB.Name), Schema: p.DB.Schema}, nil)
	p.NoError(err)
	publisher := traces.Publisher(own)
	p.shop = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := provider.Tracer("http").Start(r.Context(), "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		err := outbox.InTx(ctx, p.DB.DB, func(ctx context.Context, _ *sql.Tx) error {
			var messages []*message.Message
			for _, id := range r.URL.Query()["id"] {
				msg := message.NewMessage(id, []byte("7"))
				msg.Metadata.Set(correlation.CorrelationIDMetadataKey, "request-1")
				msg.SetContext(ctx)
				messages = append(messages, msg)
			}
			return publisher.Publish("orders", messages...)
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	p.T.Cleanup(p.shop.Close)

	config := p.Subscriber()
	config.Hooks = traces.Hooks()
	subscriber, err := outbox.NewSubscriber(p.DB.DB, config, nil)
	p.NoError(err)
	router := p.router(traces, correlation.CorrelationID)
	router.AddHandler("pack", "orders", subscriber, p.queue, publisher, func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("parcel-"+msg.UUID, msg.Payload)}, nil
	})
	p.run(router.Run, router.Close)
}

// startRelay forwards parcels to RabbitMQ.
func (p *tracedPath) startRelay() {
	broker, err := amqp.NewPublisher(amqp.Config{URL: p.broker, DeclareQueues: []string{p.queue}}, nil)
	p.NoError(err)
	p.T.Cleanup(func() { p.NoError(broker.Close()) })
	traces := otel.New(otel.Config{TracerProvider: p.provider("relay"), System: "rabbitmq"})
	relay, err := forwarder.New(p.DB.DB, traces.Publisher(broker), forwarder.Config{Topics: []string{p.queue}, Subscriber: p.Subscriber()}, nil)
	p.NoError(err)
	p.run(relay.Run, relay.Close)
}

// startShipping handles parcels from RabbitMQ, in the transactions of an inbox.
func (p *tracedPath) startShipping(config inbox.Config) {
	traces := otel.New(otel.Config{TracerProvider: p.provider("shipping"), System: "rabbitmq"})
	in, err := inbox.New(p.DB.DB, config, nil)
	p.NoError(err)
	once, err := middleware.Inbox(in, inbox.Identity{Source: "shop", Handler: "ship"})
	p.NoError(err)
	subscriber, err := wmamqp.NewSubscriber(configs.Config(p.broker), watermill.NopLogger{})
	p.NoError(err)
	router := p.router(traces, once)
	router.AddConsumerHandler("ship", p.queue, subscriber, func(msg *message.Message) error {
		if _, inTx := outbox.TxFrom(msg.Context()); inTx {
			p.done <- msg.UUID
		}
		return nil
	})
	p.run(router.Run, router.Close)
}

func (p *tracedPath) router(traces *otel.Traces, inner message.HandlerMiddleware) *message.Router {
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	p.NoError(err)
	router.AddMiddleware(middleware.Outcome, traces.Middleware, inner)
	return router
}

// run goes on until the test ends.
func (p *tracedPath) run(run func(context.Context) error, stop func() error) {
	ended := make(chan error, 1)
	go func() { ended <- run(context.Background()) }()
	p.T.Cleanup(func() {
		p.NoError(stop())
		p.NoError(<-ended)
	})
}

// post places orders in one request.
func (p *tracedPath) post(ids ...string) {
	response, err := p.shop.Client().Post(p.shop.URL+"?id="+strings.Join(ids, "&id="), "", nil) //nolint:noctx // on loopback
	p.NoError(err)
	p.NoError(response.Body.Close())
	p.Equal(http.StatusOK, response.StatusCode)
}

// handled waits until so many messages were handled behind the broker, and settled in the outbox.
func (p *tracedPath) handled(n int) {
	patience := time.NewTimer(testoutbox.Patience)
	defer patience.Stop()
	for range n {
		select {
		case <-p.done:
		case <-patience.C:
			p.FailNow("the message is not handled behind the broker")
		}
	}
	require.Eventually(p.T, func() bool { return p.Count(outbox.Done) == 2*n }, testoutbox.Patience, time.Millisecond)
}

// spans are those of the exporter once there are n, with the name that the queue has in the documentation.
func (p *tracedPath) spans(n int) (spans tracetest.SpanStubs) {
	require.Eventually(p.T, func() bool {
		spans = p.exporter.GetSpans()
		return len(spans) >= n
	}, testoutbox.Patience, time.Millisecond)
	p.Len(spans, n)
	for i := range spans {
		spans[i].Name = strings.Replace(spans[i].Name, p.queue, "parcels", 1)
		for j, a := range spans[i].Attributes {
			if a.Value.AsString() == p.queue {
				spans[i].Attributes[j] = a.Key.String("parcels")
			}
		}
	}
	return spans
}

// ended are the spans once n of a kind are among them: a consumer's span ends after its handler.
func (p *tracedPath) ended(n int, kind trace.SpanKind) (spans tracetest.SpanStubs) {
	var of int
	require.Eventually(p.T, func() bool {
		spans, of = p.exporter.GetSpans(), 0
		for _, s := range spans {
			if s.SpanKind == kind {
				of++
			}
		}
		return of >= n
	}, testoutbox.Patience, time.Millisecond)
	p.Equal(n, of, kind)
	return spans
}

// find returns the only span of a service with a name and a kind.
func (p *tracedPath) find(spans tracetest.SpanStubs, service, name string, kind trace.SpanKind) (found tracetest.SpanStub) {
	p.T.Helper()
	n := 0
	for _, s := range spans {
		if serviceOf(s) == service && s.Name == name && s.SpanKind == kind {
			found = s
			n++
		}
	}
	p.Equal(1, n, "%s: %s, %s", service, name, kind)
	return found
}

// stands checks a span's parent and its only link.
func (p *tracedPath) stands(s, parent tracetest.SpanStub, link *tracetest.SpanStub) {
	p.T.Helper()
	p.Equal(parent.SpanContext.SpanID(), s.Parent.SpanID(), s.Name)
	if parent.SpanContext.IsValid() {
		p.Equal(parent.SpanContext.TraceID(), s.SpanContext.TraceID(), s.Name)
	}
	if link == nil {
		p.Empty(s.Links, s.Name)
		return
	}
	p.Len(s.Links, 1, s.Name)
	p.True(linked(s, link.SpanContext), s.Name)
	p.NotEqual(link.SpanContext.TraceID(), s.SpanContext.TraceID(), s.Name)
}

// says checks all attributes of a span.
func (p *tracedPath) says(s tracetest.SpanStub, system, operation, destination, id string, more ...attribute.KeyValue) {
	p.T.Helper()
	p.ElementsMatch(append([]attribute.KeyValue{
		attribute.String("messaging.system", system), attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", operation), attribute.String("messaging.destination.name", destination),
		attribute.String("messaging.message.id", id), attribute.String("messaging.message.conversation_id", "request-1"),
		attribute.Int("messaging.message.body.size", 1),
	}, more...), s.Attributes, s.Name)
}

func serviceOf(s tracetest.SpanStub) string {
	name, _ := s.Resource.Set().Value("service.name")
	return name.AsString()
}

func valueOf(s tracetest.SpanStub, key attribute.Key) attribute.Value {
	set := attribute.NewSet(s.Attributes...)
	value, _ := set.Value(key)
	return value
}
