package amqp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
)

func TestBadConfigurationIsNamed(t *testing.T) {
	const good = "amqp://127.0.0.1"
	long := strings.Repeat("n", 256)
	for field, config := range map[string]amqp.Config{
		"Config.URL":                             {},
		"Config.MaxPayload":                      {URL: good, MaxPayload: -1},
		"Config.ConfirmTimeout":                  {URL: good, ConfirmTimeout: -1},
		"Config.ConnectTimeout":                  {URL: good, ConnectTimeout: -1},
		"Config.Heartbeat":                       {URL: good, Heartbeat: time.Millisecond},
		"Config.DeclareQueues[1]":                {URL: good, DeclareQueues: []string{"q", ""}},
		"Config.Topology.Queues[0].Name":         {URL: good, Topology: amqp.Topology{Queues: []amqp.Queue{{Name: long}}}},
		"Config.Topology.Queues[0].Args":         {URL: good, Topology: amqp.Topology{Queues: []amqp.Queue{{Name: "q", Args: map[string]any{"a": struct{}{}}}}}},
		"Config.Topology.Exchanges[0].Name":      {URL: good, Topology: amqp.Topology{Exchanges: []amqp.Exchange{{Kind: "topic"}}}},
		"Config.Topology.Exchanges[0].Kind":      {URL: good, Topology: amqp.Topology{Exchanges: []amqp.Exchange{{Name: "e"}}}},
		"Config.Topology.Bindings[0].Queue":      {URL: good, Topology: amqp.Topology{Bindings: []amqp.Binding{{Exchange: "e"}}}},
		"Config.Topology.Bindings[0].Exchange":   {URL: good, Topology: amqp.Topology{Bindings: []amqp.Binding{{Queue: "q"}}}},
		"Config.Topology.Bindings[0].RoutingKey": {URL: good, Topology: amqp.Topology{Bindings: []amqp.Binding{{Queue: "q", Exchange: "e", RoutingKey: long}}}},
	} {
		_, err := amqp.NewPublisher(config, nil)
		var e *outbox.FieldError
		require.ErrorAs(t, err, &e, field)
		require.Equal(t, field, e.Field)
	}
	for _, heartbeat := range []time.Duration{65535*time.Second + 1, 1<<63 - 1} {
		_, err := amqp.NewPublisher(amqp.Config{URL: good, Heartbeat: heartbeat}, nil)
		require.ErrorContains(t, err, "is not between 1s and 18h12m15s")
	}
	_, err := amqp.NewPublisher(amqp.Config{URL: "http://user:a-secret@host"}, nil)
	require.ErrorContains(t, err, "Config.URL")
	require.NotContains(t, err.Error(), "a-secret")
}
