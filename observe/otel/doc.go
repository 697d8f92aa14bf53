// Package otel traces messages with OpenTelemetry, from the code that publishes them through the table, forwarders and
// brokers to their handlers, and measures what an outbox does.
//
//	traces := otel.New(otel.Config{})
//	publisher = traces.Publisher(publisher)       // of the outbox; and that of a forwarder, to a broker
//	router.AddMiddleware(traces.Middleware)       // where messages are handled, from the outbox or from a broker
//	config.Hooks = traces.Hooks()                 // claims and settlements
//
// Publishing puts the context of a span into the message's metadata, as traceparent, and it stays there: the row has it as
// a header, a forwarder passes it on, and whoever handles the message links its own span to it. A context that is already
// there is kept.
//
// Spans follow OpenTelemetry's conventions for messaging, which are still in development: conventions.go has all names.
// Spans of handlers are linked to what created the message and are not its children, because a message may be handled hours
// later, and several times; Config.ContinueTrace makes them children.
//
// NewMetrics makes metrics, the same as observe/prometheus:
//
//	metrics, err := otel.NewMetrics(otel.MetricsConfig{})
//	config.Hooks = observe.Join(traces.Hooks(), metrics.Hooks())
//
// docs/telemetry.md has a table of all.
package otel
