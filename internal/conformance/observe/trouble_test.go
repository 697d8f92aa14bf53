package observe_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
	"github.com/incursa/watermill-outbox/middleware"
	observe "github.com/incursa/watermill-outbox/observe/prometheus"
)

// While all is well, no alert fires. Then the only worker of a topic is killed with a message in hand, a broker goes away, and
// a handler refuses all that it gets: Prometheus, which scrapes all that, raises the alert of each. The alerts are those of
// alerts.yaml, but for how long they wait.
func TestLong_TroubleRaisesItsAlert(t *testing.T) {
	binary := prometheusBinary(t)
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		metrics, err := observe.New(observe.Config{})
		o.NoError(err)
		registry := prometheus.NewPedanticRegistry()
		o.NoError(registry.Register(metrics))
		target := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		t.Cleanup(target.Close)
		p := &program{Outbox: o, metrics: metrics}
		broker := p.serve()
		server := startPrometheus(t, binary, target.Listener.Addr().String(), impatient(t))

		o.Enqueue("orders", 0, 10)
		o.Enqueue("relayed", 10, 10)
		p.untilData(server, `outbox_deliveries_total{topic="orders", outcome="fail"} == 0`)
		p.untilData(server, `outbox_messages_settled_total{outcome="ack"} >= 20`)
		p.untilData(server, `outbox_dead_letters{topic="orders"} == 0`)
		o.Equal([]string{}, p.evaluated(server))

		p.killWorker("invoices")
		for i := range 20 {
			_, err := o.Outbox.Enqueue(t.Context(), o.DB.DB, outbox.Message{UUID: fmt.Sprint("poison-", i), Topic: "orders"})
			o.NoError(err)
		}
		close(broker.away)
		o.Enqueue("relayed", 200, 1)

		want := []string{"OutboxBrokerDown", "OutboxDeadLetters orders", "OutboxPoisonFlood orders", "OutboxTopicStuck invoices", "OutboxTopicUnhandled invoices", "OutboxWorkerLost"}
		var firing []string
		require.Eventually(t, func() bool {
			firing = p.evaluated(server)
			return len(firing) >= len(want)
		}, testoutbox.Patience, 100*time.Millisecond, "of %v only %v", want, &firing)
		o.Equal(want, firing)
	})
}

// impatient are the rules with alerts that fire at once, and soon.
func impatient(t *testing.T) string {
	rules, err := os.ReadFile(filepath.Join(files, "alerts.yaml"))
	require.NoError(t, err)
	text := regexp.MustCompile(`(?m)^ +for: .*\n`).ReplaceAllString(string(rules), "")
	text = strings.Replace(text, "(outbox_backlog_oldest_age_seconds) > 300", "(outbox_backlog_oldest_age_seconds) > 10", 1)
	file := filepath.Join(t.TempDir(), "alerts.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// evaluated are the alerts that fire, with their topics, at an evaluation that begins now.
func (p *program) evaluated(server promServer) []string {
	p.T.Helper()
	begun := time.Now()
	var rules struct {
		Data struct {
			Groups []struct{ LastEvaluation time.Time }
		}
	}
	p.Eventually(func() bool {
		p.NoError(server.get("rules", nil, &rules))
		return rules.Data.Groups[0].LastEvaluation.After(begun)
	}, testoutbox.Patience, 50*time.Millisecond)
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	p.NoError(server.get("alerts", nil, &answer))
	firing := []string{}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			firing = append(firing, strings.TrimSpace(a.Labels["alertname"]+" "+a.Labels["topic"]))
		}
	}
	slices.Sort(firing)
	return firing
}

// A fragileBroker takes messages until it is away.
type fragileBroker struct{ away chan struct{} }

func (b *fragileBroker) Publish(string, ...*message.Message) error {
	select {
	case <-b.away:
		return errors.New("connection refused")
	default:
		return nil
	}
}

func (b *fragileBroker) Close() error { return nil }

// serve handles orders, of which it refuses poison, and forwards what is to be relayed.
func (p *program) serve() *fragileBroker {
	config := p.Subscriber()
	config.Hooks, config.UnhandledAfter = p.metrics.Hooks(), 100*time.Millisecond
	subscriber, err := outbox.NewSubscriber(p.DB.DB, config, nil)
	p.NoError(err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	p.NoError(err)
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("ship", "orders", subscriber, func(msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, "poison") {
			return outbox.Permanent(errors.New("poison"))
		}
		return nil
	})
	p.background(func(context.Context) error { return router.Run(context.Background()) }, router.Close)
	broker := &fragileBroker{make(chan struct{})}
	relayed := p.Subscriber()
	relayed.Hooks = p.metrics.Hooks()
	relay, err := forwarder.New(p.DB.DB, broker, forwarder.Config{Topics: []string{"relayed"}, Subscriber: relayed, OnState: p.metrics.OnForwarder("kafka")}, nil)
	p.NoError(err)
	p.background(relay.Run, func() error { return nil })
	return broker
}

const workerVariable = "OUTBOX_TEST_WORKER"

// A worker is a process that takes a message and keeps it.
type worker struct{ Backend, Driver, DSN, Schema, Topic string }

func (w worker) run() error {
	db, err := sql.Open(w.Driver, w.DSN)
	if err != nil {
		return err
	}
	s, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: testoutbox.Dialect(w.Backend), Schema: w.Schema, LeaseDuration: time.Second}, nil)
	if err != nil {
		return err
	}
	messages, err := s.Subscribe(context.Background(), w.Topic)
	if err != nil {
		return err
	}
	<-messages
	fmt.Println("taken")
	_, err = io.Copy(io.Discard, os.Stdin) // until it is killed, or the test ends
	return err
}

// killWorker kills a worker that has a message of the topic in hand, which nobody else handles.
func (p *program) killWorker(topic string) {
	p.Enqueue(topic, 100, 1)
	lines := make(chan testprocess.Line, 1)
	w := testprocess.Start(p.T, workerVariable, worker{p.DB.Name, p.DB.DriverName, p.DB.DSN, p.DB.Schema, topic}, lines)
	select {
	case line := <-lines:
		p.Equal("taken", line.Text)
	case <-time.After(testoutbox.Patience):
		p.FailNow("the worker has taken nothing")
	}
	p.NoError(w.Kill())
}
