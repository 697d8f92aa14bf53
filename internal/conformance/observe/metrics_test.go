package observe_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/observe"
	"github.com/incursa/watermill-outbox/observe/otel"
	collector "github.com/incursa/watermill-outbox/observe/prometheus"
	"github.com/incursa/watermill-outbox/stores"
)

// OpenTelemetry has every series that Prometheus has, with the same value, by a name that becomes Prometheus's.
func TestMetricsAreTheSameThroughOpenTelemetry(t *testing.T) {
	reader := sdk.NewManualReader()
	measured, err := otel.NewMetrics(otel.MetricsConfig{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	require.NoError(t, err)
	scraped, err := collector.New(collector.Config{})
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(scraped))

	happen(observe.Join(measured.Hooks(), scraped.Hooks()))
	for _, m := range []interface {
		OnForwarder(string) func(forwarder.State)
		WatchInFlight(string, func() map[string]int)
		WatchStores(func() []stores.StoreStatus)
	}{measured, scraped} {
		m.OnForwarder("kafka")(forwarder.Open)
		m.WatchInFlight("shop", func() map[string]int { return map[string]int{"orders": 4} })
		m.WatchStores(func() []stores.StoreStatus {
			return []stores.StoreStatus{{Store: "a", State: stores.Open, InFlight: 1}, {Store: "b", InFlight: 2}}
		})
	}
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	require.Len(t, data.ScopeMetrics, 1)
	families, err := registry.Gather()
	require.NoError(t, err)
	want := seriesOfPrometheus(families)
	require.Len(t, families, 27, "all metrics there are")
	require.Equal(t, want, seriesOfOpenTelemetry(data.ScopeMetrics[0].Metrics))
}

// happen tells of something of each kind.
func happen(h outbox.Hooks) {
	failure := errors.New("refused")
	h.OnPublish(outbox.PublishEvent{Store: "shop", Topics: []string{"orders", "mail"}, Counts: []int{2, 1}, Messages: 3, Took: time.Second})
	h.OnPublish(outbox.PublishEvent{Store: "shop", Topics: []string{"orders"}, Counts: []int{5}, Messages: 5, Took: time.Second, Err: failure})
	h.OnClaim(outbox.ClaimEvent{Store: "shop", Messages: 2, Topics: map[string]int{"orders": 2}, Took: time.Second})
	h.OnSettle(outbox.SettleEvent{Store: "shop", Outcomes: map[outbox.Outcome]int{outbox.Ack: 4, outbox.Fail: 1}, Refused: 1, Took: time.Second})
	h.OnHandled(outbox.HandledEvent{Store: "shop", Topic: "orders", Attempt: 1, Outcome: outbox.Retry, Took: 2 * time.Second, Wait: time.Minute})
	h.OnHandled(outbox.HandledEvent{Store: "shop", Topic: "orders", Attempt: 2, Outcome: outbox.Ack, Took: time.Millisecond})
	h.OnHandlerTimeout(outbox.HandledEvent{Store: "shop", Topic: "orders"})
	h.OnReap(outbox.ReapEvent{Store: "shop", Messages: 7})
	h.OnJoinEnd(outbox.JoinEvent{Store: "shop", Status: join.Failed})
	h.OnGroupSettle(outbox.HandledEvent{Store: "shop", Topic: "orders", Group: "mail", Attempt: 1, Outcome: outbox.Ack})
	h.OnGroupRead(outbox.GroupReadEvent{Store: "shop", Topic: "orders", Group: "mail", Messages: 3, Position: 40, Lag: 9 * time.Second})
	h.OnLogWentBack(&outbox.LogWentBackError{Store: "shop"})
	h.OnBacklog([]outbox.TopicBacklog{{Store: "shop", Topic: "orders", Waiting: 5, Age: time.Minute, Handled: true, BlockedStreams: 2, Failed: 3}})
	h.OnBacklog([]outbox.TopicBacklog{{Store: "shop", Topic: "mail", Waiting: 1}, {Store: "shop", Topic: "orders", Handled: true}})
}

// checked is the one metric whose value is the time.
const checked = "outbox_backlog_checked_timestamp_seconds"

func seriesOfPrometheus(families []*dto.MetricFamily) map[string]string {
	series := map[string]string{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := family.GetName() + fmt.Sprint(labels)
			switch h := m.GetHistogram(); {
			case h != nil && h.GetSampleCount() == 0: // OpenTelemetry has no histogram of nothing
			case h != nil:
				below, counts := uint64(0), []uint64{}
				for _, b := range h.GetBucket() {
					counts = append(counts, b.GetCumulativeCount()-below)
					below = b.GetCumulativeCount()
				}
				series[name] = fmt.Sprint(h.GetSampleSum(), append(counts, h.GetSampleCount()-below))
			case m.GetCounter() != nil:
				series[name] = fmt.Sprint(m.GetCounter().GetValue())
			case family.GetName() == checked:
				series[name] = "now"
			default:
				series[name] = fmt.Sprint(m.GetGauge().GetValue())
			}
		}
	}
	return series
}

func seriesOfOpenTelemetry(metrics []metricdata.Metrics) map[string]string {
	series := map[string]string{}
	for _, m := range metrics {
		name := strings.ReplaceAll(m.Name, ".", "_")
		if m.Unit == "s" {
			name += "_seconds"
		}
		add := func(set attribute.Set, value any) {
			var labels []string
			for _, a := range set.ToSlice() {
				labels = append(labels, string(a.Key)+"="+a.Value.AsString())
			}
			slices.Sort(labels)
			series[name+fmt.Sprint(labels)] = fmt.Sprint(value)
		}
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			name += "_total"
			for _, p := range d.DataPoints {
				add(p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, fmt.Sprint(p.Sum, p.BucketCounts))
			}
		case metricdata.Gauge[float64]:
			for _, p := range d.DataPoints {
				if name == checked {
					add(p.Attributes, "now")
				} else {
					add(p.Attributes, p.Value)
				}
			}
		default:
			series[name] = fmt.Sprintf("%T", d)
		}
	}
	return series
}
