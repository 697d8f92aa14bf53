// Package prometheus makes metrics of what an outbox does, for Prometheus.
//
//	metrics, err := prometheus.New(prometheus.Config{})
//	registry.MustRegister(metrics)
//	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Hooks: metrics.Hooks(), …}, logger)
//
// Give the same hooks to the Publisher, the Outbox, the Coordinator of joins and the stores of a process. Forwarders are
// watched by OnForwarder, stores by WatchStores, and what handlers hold by WatchInFlight.
//
// alerts.yaml has alert rules and dashboard.json a Grafana dashboard over these metrics; docs/telemetry.md has a table of all
// names. Labels are the store, the topic and the consumer group, and never an id, an error's text or a stream key. Topics and
// stores beyond Config.MaxTopics and MaxStores share the label value "other".
package prometheus
