package observe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testserver"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
	observe "github.com/incursa/watermill-outbox/observe/prometheus"
	"github.com/incursa/watermill-outbox/stores"
)

const files = "../../../observe/prometheus"

// A Prometheus scrapes a program that does all that there are metrics of. Each query of the dashboard has data, and so has
// each metric that an alert is about.
func TestLong_PrometheusAnswersEveryQuery(t *testing.T) {
	binary := prometheusBinary(t)
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		metrics, err := observe.New(observe.Config{})
		o.NoError(err)
		registry := prometheus.NewPedanticRegistry()
		o.NoError(registry.Register(metrics))
		target := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		t.Cleanup(target.Close)
		p := &program{Outbox: o, metrics: metrics}
		p.start()
		server := startPrometheus(t, binary, target.Listener.Addr().String(), filepath.Join(files, "alerts.yaml"))

		for _, query := range panels(t) {
			p.untilData(server, query)
		}
		alerts, err := os.ReadFile(filepath.Join(files, "alerts.yaml"))
		o.NoError(err)
		for _, metric := range regexp.MustCompile(`outbox_\w+`).FindAllString(string(alerts), -1) {
			p.untilData(server, metric)
		}
		var rules struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		require.Eventually(t, func() bool { // until each has been evaluated
			o.NoError(server.get("rules", nil, &rules))
			for _, rule := range rules.Data.Groups[0].Rules {
				if rule.Health != "ok" {
					return false
				}
			}
			return len(rules.Data.Groups[0].Rules) > 10
		}, testoutbox.Patience, 100*time.Millisecond)
	})
}

func prometheusBinary(t *testing.T) string {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		require.NotContains(t, strings.Split(os.Getenv("OUTBOX_TEST_REQUIRE"), ","), "prometheus", "OUTBOX_TEST_REQUIRE names it")
		skipped.Add(t.Name(), "prometheus", "it is not installed")
		t.Skip("prometheus is not installed: Debian's package prometheus has it")
	}
	return binary
}

// panels are the queries of the dashboard, with its variables filled in.
func panels(t *testing.T) (queries []string) {
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile(filepath.Join(files, "dashboard.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, strings.NewReplacer("$store", ".*", "$topic", ".*", "$__rate_interval", "5s").Replace(target.Expr))
		}
	}
	require.Greater(t, len(queries), 15)
	return queries
}

// A program has a bit of everything.
type program struct {
	*testoutbox.Outbox
	metrics *observe.Metrics
}

func (p *program) start() {
	dialect, db := testoutbox.Dialect(p.DB.Name), p.DB.DB
	publisher, err := outbox.New(db, outbox.Config{Dialect: dialect, Schema: p.DB.Schema, Hooks: p.metrics.Hooks(), Log: outbox.QueueAndLog}, nil)
	p.NoError(err)
	config := p.Subscriber()
	config.Hooks, config.UnhandledAfter, config.MaxAttempts = p.metrics.Hooks(), 50*time.Millisecond, 2
	subscriber, err := outbox.NewSubscriber(db, config, nil)
	p.NoError(err)
	p.metrics.WatchInFlight("", subscriber.InFlight)
	group := config
	group.ConsumerGroup = "mail"
	reader, err := outbox.NewSubscriber(db, group, nil)
	p.NoError(err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	p.NoError(err)
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("ship", "orders", subscriber, func(msg *message.Message) error {
		if msg.UUID == "poison" {
			return errors.New("poison")
		}
		return nil
	})
	router.AddConsumerHandler("mail", "orders", reader, func(*message.Message) error { return nil })
	p.background(func(context.Context) error { return router.Run(context.Background()) }, router.Close)

	sequencer, err := outbox.NewSequencer(db, outbox.SequencerConfig{Dialect: dialect, Schema: p.DB.Schema}, nil)
	p.NoError(err)
	p.background(sequencer.Run, func() error { return nil })
	p.forward()
	p.serveStores()
	joins, err := join.NewCoordinator(db, join.Config{Dialect: dialect, Schema: p.DB.Schema, Hooks: p.metrics.Hooks()}, nil)
	p.NoError(err)
	p.background(func(ctx context.Context) error { return p.publish(ctx, publisher, joins) }, func() error { return nil })
}

// publish goes on until ctx ends.
func (p *program) publish(ctx context.Context, o *outbox.Outbox, joins *join.Coordinator) error {
	for n := 0; ctx.Err() == nil; n++ {
		uuid := "good"
		if n%5 == 0 {
			uuid = "poison"
		}
		_, err := o.Enqueue(context.WithoutCancel(ctx), p.DB.DB, outbox.Message{UUID: uuid, Topic: "orders", StreamKey: fmt.Sprint("s", n%7)},
			outbox.Message{Topic: "orders"}, outbox.Message{Topic: "nobody"})
		if err != nil {
			return err
		}
		if n%10 == 0 {
			id, err := joins.Start(context.WithoutCancel(ctx), p.DB.DB, join.StartParams{ExpectedSteps: 1})
			if err == nil {
				_, err = joins.Enqueue(context.WithoutCancel(ctx), p.DB.DB, id, outbox.Message{Topic: "orders"})
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// forward runs a forwarder whose broker is away.
func (p *program) forward() {
	relay, err := forwarder.New(p.DB.DB, noBroker{}, forwarder.Config{Topics: []string{"relayed"}, Subscriber: p.Subscriber(),
		OnState: p.metrics.OnForwarder("kafka")}, nil)
	p.NoError(err)
	p.background(relay.Run, func() error { return nil })
}

type noBroker struct{}

func (noBroker) Publish(string, ...*message.Message) error { return errors.New("connection refused") }
func (noBroker) Close() error                              { return nil }

func (p *program) serveStores() {
	store, err := stores.New(p.DB.DB, stores.Database{ID: "acme", Dialect: testoutbox.Dialect(p.DB.Name), Schema: p.DB.Schema}, outbox.Config{}, nil)
	p.NoError(err)
	provider, err := stores.NewStatic(store)
	p.NoError(err)
	all, err := stores.NewSubscriber(provider, stores.SubscriberConfig{}, nil)
	p.NoError(err)
	messages, err := all.Subscribe(p.T.Context(), "of-stores")
	p.NoError(err)
	go func() {
		for msg := range messages {
			msg.Ack()
		}
	}()
	p.metrics.WatchStores(all.Status)
	p.T.Cleanup(func() { p.NoError(all.Close()) })
}

// background ends when the test does.
func (p *program) background(run func(context.Context) error, stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	p.T.Cleanup(func() {
		cancel()
		p.NoError(stop())
		if err := <-ended; !errors.Is(err, context.Canceled) {
			p.NoError(err)
		}
	})
}

// untilData waits until a query has an answer.
func (p *program) untilData(server promServer, query string) {
	p.T.Helper()
	var answer struct {
		Data struct {
			Result []struct{ Value []any }
		}
	}
	require.Eventually(p.T, func() bool {
		p.NoError(server.get("query", url.Values{"query": {query}}, &answer), query)
		for _, r := range answer.Data.Result {
			if len(r.Value) == 2 && r.Value[1] != "NaN" {
				return true
			}
		}
		return false
	}, testoutbox.Patience, 100*time.Millisecond, query)
}

// A promServer is the address of a Prometheus.
type promServer string

func (s promServer) get(what string, values url.Values, into any) error {
	response, err := http.Get("http://" + string(s) + "/api/v1/" + what + "?" + values.Encode()) //nolint:noctx // on loopback
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return json.Unmarshal(text, into)
}

func startPrometheus(t *testing.T, binary, target, alerts string) promServer {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(alerts)
	require.NoError(t, err)
	config := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(`
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs: [{job_name: outbox, static_configs: [{targets: [%q]}]}]
`, rules, target)), 0o600))
	_, address := testserver.FreePort(t)
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=error")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = testoutbox.Patience // then it is killed
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + address + "/-/ready") //nolint:noctx // on loopback
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, testoutbox.Patience, 50*time.Millisecond)
	return promServer(address)
}
