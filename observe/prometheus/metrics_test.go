package prometheus_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/join"
	observe "github.com/incursa/watermill-outbox/observe/prometheus"
	"github.com/incursa/watermill-outbox/stores"
)

func newMetrics(t *testing.T, config observe.Config) (*observe.Metrics, *prometheus.Registry) {
	t.Helper()
	metrics, err := observe.New(config)
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	return metrics, registry
}

// is compares some metrics with the text that Prometheus would scrape, without its comments.
func is(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	got, err := text(registry)
	require.NoError(t, err)
	for line := range strings.Lines(strings.TrimSpace(want)) {
		require.Contains(t, got, strings.TrimSpace(line)+"\n")
	}
}

func text(registry *prometheus.Registry) (string, error) {
	families, err := registry.Gather()
	var lines strings.Builder
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			name := family.GetName() + "{" + strings.Join(labels, ", ") + "}"
			switch {
			case metric.GetHistogram() != nil:
				fmt.Fprintf(&lines, "%s %d %v\n", name, metric.GetHistogram().GetSampleCount(), metric.GetHistogram().GetSampleSum())
			case metric.GetCounter() != nil:
				fmt.Fprintf(&lines, "%s %v\n", name, metric.GetCounter().GetValue())
			default:
				fmt.Fprintf(&lines, "%s %v\n", name, metric.GetGauge().GetValue())
			}
		}
	}
	return lines.String(), err
}

func TestEventsBecomeMetrics(t *testing.T) {
	metrics, registry := newMetrics(t, observe.Config{})
	hooks, failure := metrics.Hooks(), errors.New("refused")
	hooks.OnPublish(outbox.PublishEvent{Topics: []string{"orders", "mail"}, Counts: []int{2, 1}, Messages: 3, Took: time.Second})
	hooks.OnPublish(outbox.PublishEvent{Topics: []string{"orders"}, Counts: []int{5}, Messages: 5, Took: time.Second, Err: failure})
	hooks.OnClaim(outbox.ClaimEvent{Messages: 2, Topics: map[string]int{"orders": 2}, Took: time.Second})
	hooks.OnSettle(outbox.SettleEvent{Outcomes: map[outbox.Outcome]int{outbox.Ack: 4, outbox.Fail: 1}, Refused: 1, Took: time.Second})
	hooks.OnSettle(outbox.SettleEvent{Outcomes: map[outbox.Outcome]int{outbox.Ack: 4}, Took: time.Second, Err: failure})
	hooks.OnHandled(outbox.HandledEvent{Topic: "orders", Attempt: 1, Outcome: outbox.Retry, Took: 2 * time.Second, Wait: time.Second})
	hooks.OnHandled(outbox.HandledEvent{Topic: "orders", Attempt: 2, Outcome: outbox.Ack, Took: time.Second})
	hooks.OnHandlerTimeout(outbox.HandledEvent{Topic: "orders"})
	hooks.OnReap(outbox.ReapEvent{Messages: 7})
	hooks.OnJoinEnd(outbox.JoinEvent{Status: join.Failed})
	hooks.OnGroupSettle(outbox.HandledEvent{Topic: "orders", Group: "mail", Attempt: 1, Outcome: outbox.Ack})
	hooks.OnGroupRead(outbox.GroupReadEvent{Topic: "orders", Group: "mail", Messages: 3, Position: 40, Lag: 9 * time.Second})
	is(t, registry, `outbox_log_lag_seconds{group="mail", store="", topic="orders"} 9`)
	hooks.OnGroupRead(outbox.GroupReadEvent{Topic: "orders", Group: "mail", Position: 43})
	hooks.OnLogWentBack(&outbox.LogWentBackError{})
	is(t, registry, `
		outbox_messages_published_total{store="", topic="orders"} 2
		outbox_messages_published_total{store="", topic="mail"} 1
		outbox_messages_claimed_total{store="", topic="orders"} 2
		outbox_messages_settled_total{outcome="ack", store=""} 3
		outbox_messages_settled_total{outcome="fail", store=""} 1
		outbox_messages_refused_total{store=""} 1
		outbox_messages_reaped_total{store=""} 7
		outbox_deliveries_total{group="", outcome="retry", store="", topic="orders"} 1
		outbox_deliveries_total{group="", outcome="ack", store="", topic="orders"} 1
		outbox_deliveries_total{group="", outcome="fail", store="", topic="orders"} 0
		outbox_deliveries_total{group="mail", outcome="ack", store="", topic="orders"} 1
		outbox_handler_duration_seconds{group="", store="", topic="orders"} 2 3
		outbox_delivery_wait_seconds{store="", topic="orders"} 2 1
		outbox_handler_timeouts_total{store="", topic="orders"} 1
		outbox_operation_duration_seconds{operation="publish", store=""} 2 2
		outbox_operation_errors_total{operation="publish", store=""} 1
		outbox_operation_errors_total{operation="settle", store=""} 1
		outbox_joins_ended_total{status="failed", store=""} 1
		outbox_log_messages_read_total{group="mail", store="", topic="orders"} 3
		outbox_log_lag_seconds{group="mail", store="", topic="orders"} 0
		outbox_log_position{group="mail", store="", topic="orders"} 43
		outbox_log_went_back_total{store=""} 1`)
}

// Counters that a rule looks at are there before the first event, or it would not be an increase.
func TestCountersBeginAtZero(t *testing.T) {
	_, registry := newMetrics(t, observe.Config{Stores: []string{"a", "b"}})
	is(t, registry, `
		outbox_messages_reaped_total{store="a"} 0
		outbox_messages_settled_total{outcome="fail", store="b"} 0
		outbox_operation_errors_total{operation="claim", store="b"} 0
		outbox_joins_ended_total{status="failed", store="a"} 0
		outbox_log_went_back_total{store="b"} 0`)
}

func TestBacklogFallsToZero(t *testing.T) {
	metrics, registry := newMetrics(t, observe.Config{})
	onBacklog := metrics.Hooks().OnBacklog
	onBacklog([]outbox.TopicBacklog{{Topic: "orders", Waiting: 5, Age: time.Minute, Handled: true, BlockedStreams: 2, Failed: 3, PausedSince: time.Unix(1, 0)}, {Topic: "mail", Waiting: 1}})
	is(t, registry, `
		outbox_backlog_messages{store="", topic="orders"} 5
		outbox_backlog_oldest_age_seconds{store="", topic="orders"} 60
		outbox_streams_blocked{store="", topic="orders"} 2
		outbox_dead_letters{store="", topic="orders"} 3
		outbox_topic_paused{store="", topic="orders"} 1
		outbox_topic_paused{store="", topic="mail"} 0
		outbox_topic_handled{store="", topic="orders"} 1
		outbox_topic_handled{store="", topic="mail"} 0`)
	onBacklog([]outbox.TopicBacklog{{Topic: "orders"}})
	is(t, registry, `
		outbox_backlog_messages{store="", topic="orders"} 0
		outbox_backlog_oldest_age_seconds{store="", topic="orders"} 0
		outbox_streams_blocked{store="", topic="orders"} 0
		outbox_dead_letters{store="", topic="orders"} 0
		outbox_topic_paused{store="", topic="orders"} 0
		outbox_topic_handled{store="", topic="orders"} 0`)
}

// A topic for each customer is not a series for each customer.
func TestTopicsAndStoresAreCapped(t *testing.T) {
	metrics, registry := newMetrics(t, observe.Config{MaxTopics: 2, MaxStores: 2})
	hooks := metrics.Hooks()
	var backlog []outbox.TopicBacklog
	for i := range 100 {
		topic := fmt.Sprintf("customer-%d", i)
		hooks.OnHandled(outbox.HandledEvent{Topic: topic, Store: topic, Attempt: 1, Outcome: outbox.Ack})
		backlog = append(backlog, outbox.TopicBacklog{Topic: topic, Waiting: 1, Age: time.Duration(i) * time.Second})
	}
	hooks.OnBacklog(backlog)
	count, err := testutil.GatherAndCount(registry, "outbox_handler_duration_seconds", "outbox_backlog_messages")
	require.NoError(t, err)
	require.Equal(t, 6, count)
	is(t, registry, `
		outbox_deliveries_total{group="", outcome="ack", store="other", topic="other"} 98
		outbox_backlog_messages{store="", topic="customer-1"} 1
		outbox_backlog_messages{store="", topic="other"} 98
		outbox_backlog_oldest_age_seconds{store="", topic="other"} 99`)
}

func TestWhatIsAskedWhenScraped(t *testing.T) {
	metrics, registry := newMetrics(t, observe.Config{})
	onState := metrics.OnForwarder("kafka")
	is(t, registry, `outbox_forwarder_open{forwarder="kafka"} 0`)
	onState(forwarder.Open)
	is(t, registry, `outbox_forwarder_open{forwarder="kafka"} 1`)
	onState(forwarder.Closed)

	held := map[string]int{"orders": 4}
	metrics.WatchInFlight("", func() map[string]int { return held })
	metrics.WatchInFlight("gone", func() map[string]int { return map[string]int{"orders": 4} })
	metrics.WatchInFlight("gone", nil)
	metrics.WatchStores(func() []stores.StoreStatus {
		return []stores.StoreStatus{{Store: "a", State: stores.Open, InFlight: 1}, {Store: "b", InFlight: 2}}
	})
	is(t, registry, `
		outbox_forwarder_open{forwarder="kafka"} 0
		outbox_in_flight_messages{store="", topic="orders"} 4
		outbox_store_up{store="a"} 0
		outbox_store_up{store="b"} 1
		outbox_store_in_flight_messages{store="b"} 2`)
	got, err := text(registry)
	require.NoError(t, err)
	require.NotContains(t, got, `store="gone"`)
	held = nil
	is(t, registry, `outbox_in_flight_messages{store="", topic="orders"} 0`)
}

func TestBadConfig(t *testing.T) {
	for name, config := range map[string]observe.Config{
		"Config.MaxTopics": {MaxTopics: -1}, "Config.MaxStores": {MaxStores: -1}, "Config.Buckets": {Buckets: []float64{1, 1}},
	} {
		_, err := observe.New(config)
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, name, bad.Field)
	}
}

func BenchmarkOnHandled(b *testing.B) {
	metrics, err := observe.New(observe.Config{})
	require.NoError(b, err)
	hooks := metrics.Hooks()
	event := outbox.HandledEvent{Topic: "orders", Attempt: 1, Outcome: outbox.Ack, Took: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		hooks.OnHandled(event)
	}
}
