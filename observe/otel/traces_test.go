package otel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/observe/otel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTraces(config otel.Config) (*otel.Traces, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	config.TracerProvider = sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	return otel.New(config), recorder
}

// A wire is a publisher that keeps what it gets.
type wire struct {
	messages []*message.Message
	err      error
}

func (w *wire) Publish(_ string, messages ...*message.Message) error {
	w.messages = append(w.messages, messages...)
	return w.err
}

func (w *wire) Close() error { return nil }

func names(spans []sdk.ReadOnlySpan) (all []string) {
	for _, s := range spans {
		all = append(all, s.Name()+" "+s.SpanKind().String())
	}
	return all
}

func value(s sdk.ReadOnlySpan, key string) attribute.Value {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

func TestOneMessageCarriesItsSend(t *testing.T) {
	traces, recorder := newTraces(otel.Config{})
	to := &wire{}
	msg := message.NewMessage("1", []byte("four"))
	msg.Metadata.Set("correlation_id", "cause")
	require.NoError(t, traces.Publisher(to).Publish("orders", msg))
	spans := recorder.Ended()
	require.Equal(t, []string{"send orders producer"}, names(spans))
	require.Contains(t, msg.Metadata.Get("traceparent"), spans[0].SpanContext().SpanID().String())
	require.Equal(t, "outbox", value(spans[0], "messaging.system").AsString())
	require.Equal(t, "cause", value(spans[0], "messaging.message.conversation_id").AsString())
	require.EqualValues(t, 4, value(spans[0], "messaging.message.body.size").AsInt64())
	require.Equal(t, codes.Unset, spans[0].Status().Code)
}

// Each message of a batch has a context of its own, from its own context.
func TestABatchCarriesItsCreations(t *testing.T) {
	traces, recorder := newTraces(otel.Config{})
	created := message.NewMessage("2", nil)
	const context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	created.Metadata.Set("traceparent", context)
	first := message.NewMessage("1", nil)
	require.NoError(t, traces.Publisher(&wire{}).Publish("orders", first, created))
	spans := recorder.Ended()
	require.Equal(t, []string{"create orders producer", "send orders client"}, names(spans))
	require.Contains(t, first.Metadata.Get("traceparent"), spans[0].SpanContext().SpanID().String())
	require.Equal(t, context, created.Metadata.Get("traceparent"))
	require.Len(t, spans[1].Links(), 2)
	require.Equal(t, spans[0].SpanContext().SpanID(), spans[1].Links()[0].SpanContext.SpanID())
	require.Equal(t, "b7ad6b7169203331", spans[1].Links()[1].SpanContext.SpanID().String())
	require.EqualValues(t, 2, value(spans[1], "messaging.batch.message_count").AsInt64())
}

func TestABatchWithoutCreations(t *testing.T) {
	traces, recorder := newTraces(otel.Config{NoCreateSpans: true})
	messages := []*message.Message{message.NewMessage("1", nil), {UUID: "2"}} // which has no metadata
	require.NoError(t, traces.Publisher(&wire{}).Publish("orders", messages...))
	require.Equal(t, []string{"send orders producer"}, names(recorder.Ended()))
	for _, msg := range messages {
		require.Contains(t, msg.Metadata.Get("traceparent"), recorder.Ended()[0].SpanContext().SpanID().String())
	}
}

func TestAPublisherThatFails(t *testing.T) {
	traces, recorder := newTraces(otel.Config{})
	refused := outbox.Permanent(errors.New("refused"))
	require.ErrorIs(t, traces.Publisher(&wire{err: refused}).Publish("orders", message.NewMessage("1", nil)), refused)
	require.NoError(t, traces.Publisher(&wire{}).Publish("orders"))
	require.Len(t, recorder.Ended(), 1)
	require.Equal(t, codes.Error, recorder.Ended()[0].Status().Code)
	require.Equal(t, "permanent", value(recorder.Ended()[0], "error.type").AsString())
}

// A handler's span is linked to the creation of its message, or is its child, and the messages it returns follow it.
func TestHandlers(t *testing.T) {
	for name, continues := range map[string]bool{"linked": false, "child": true} {
		t.Run(name, func(t *testing.T) {
			traces, recorder := newTraces(otel.Config{ContinueTrace: continues})
			msg := message.NewMessage("1", nil)
			require.NoError(t, traces.Publisher(&wire{}).Publish("orders", msg))
			sent := recorder.Ended()[0].SpanContext()
			var inside trace.SpanContext
			produced, err := traces.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				inside = trace.SpanContextFromContext(msg.Context())
				return []*message.Message{message.NewMessage("2", nil)}, nil
			})(msg)
			require.NoError(t, err)
			span := recorder.Ended()[1]
			require.Equal(t, trace.SpanKindConsumer, span.SpanKind())
			require.Equal(t, span.SpanContext().SpanID(), inside.SpanID())
			require.Equal(t, inside, trace.SpanContextFromContext(produced[0].Context()))
			require.False(t, trace.SpanContextFromContext(msg.Context()).IsValid(), "the message is as before")
			require.Equal(t, continues, span.SpanContext().TraceID() == sent.TraceID())
			if continues {
				require.Equal(t, sent.SpanID(), span.Parent().SpanID())
				require.Empty(t, span.Links())
			} else {
				require.Equal(t, sent.SpanID(), span.Links()[0].SpanContext.SpanID())
			}
		})
	}
}

func TestHandlersThatFail(t *testing.T) {
	traces, recorder := newTraces(otel.Config{})
	_, err := traces.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, context.DeadlineExceeded })(message.NewMessage("1", nil))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Panics(t, func() {
		_, _ = traces.Middleware(func(*message.Message) ([]*message.Message, error) { panic("gone") })(message.NewMessage("1", nil))
	})
	spans := recorder.Ended()
	require.Equal(t, "timeout", value(spans[0], "error.type").AsString())
	require.Equal(t, codes.Error, spans[1].Status().Code)
	require.Equal(t, "the handler panicked", spans[1].Status().Description)
}

func TestClaimsAndSettlements(t *testing.T) {
	traces, recorder := newTraces(otel.Config{})
	hooks := traces.Hooks()
	hooks.OnClaim(outbox.ClaimEvent{Store: "shop", Messages: 3, Topics: map[string]int{"orders": 3}, Took: time.Second})
	hooks.OnClaim(outbox.ClaimEvent{Messages: 3, Topics: map[string]int{"orders": 2, "mail": 1}, Took: time.Second})
	hooks.OnSettle(outbox.SettleEvent{Outcomes: map[outbox.Outcome]int{outbox.Ack: 2, outbox.Retry: 1}, Err: errors.New("away")})
	hooks.OnGroupRead(outbox.GroupReadEvent{Topic: "orders", Group: "mail", Messages: 1})
	hooks.OnGroupRead(outbox.GroupReadEvent{Topic: "orders", Group: "mail"}) // found nothing
	spans := recorder.Ended()
	require.Equal(t, []string{"receive orders client", "receive client", "settle client", "receive orders client"}, names(spans))
	require.GreaterOrEqual(t, spans[0].EndTime().Sub(spans[0].StartTime()), time.Second)
	require.Equal(t, "shop", value(spans[0], "outbox.store").AsString())
	require.EqualValues(t, 3, value(spans[2], "messaging.batch.message_count").AsInt64())
	require.Equal(t, codes.Error, spans[2].Status().Code)
	require.Equal(t, "mail", value(spans[3], "messaging.consumer.group.name").AsString())
}
