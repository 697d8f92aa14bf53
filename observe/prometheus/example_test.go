package prometheus_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	outbox "github.com/incursa/watermill-outbox"
	observe "github.com/incursa/watermill-outbox/observe/prometheus"
)

func Example() {
	metrics, err := observe.New(observe.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer, with promhttp.Handler at /metrics
	registry.MustRegister(metrics)

	config := outbox.SubscriberConfig{Dialect: outbox.Postgres{}, Hooks: metrics.Hooks()}
	config.Hooks.OnHandled(outbox.HandledEvent{Topic: "orders", Attempt: 1, Outcome: outbox.Ack}) // as a Subscriber does

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "outbox_deliveries_total" && metric.GetCounter().GetValue() > 0 {
				fmt.Println(family.GetName(), metric.GetCounter().GetValue())
			}
		}
	}
	// Output: outbox_deliveries_total 1
}
