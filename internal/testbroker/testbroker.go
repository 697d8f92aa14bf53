// Package testbroker gives a test a RabbitMQ, shared or one that it may stop.
//
//	OUTBOX_TEST_AMQP_URL   a broker to use as it is; without it, a private node from the binaries on this machine
//	OUTBOX_TEST_ONLY       a list: where it does not name rabbitmq, there is none
//	OUTBOX_TEST_REQUIRE    a list: where it names rabbitmq, a test that finds none fails
//
// A test that is left out is listed by package skipped. A TestMain ends with Close.
package testbroker

import (
	"context"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/incursa/watermill-outbox/internal/rabbitmq"
	"github.com/incursa/watermill-outbox/internal/skipped"
)

// Name is that of the broker in the lists.
const Name = "rabbitmq"

const startTimeout = 2 * time.Minute

// shared is the private node for all tests that do not need their own.
var shared struct {
	mu   sync.Mutex
	node *rabbitmq.Node
	err  error
}

// URL returns the address of a broker that the test shares with others and must not stop. Without one it does not return.
func URL(t testing.TB) string {
	t.Helper()
	if leftOut() {
		without(t, "OUTBOX_TEST_ONLY leaves it out")
	}
	if address := os.Getenv("OUTBOX_TEST_AMQP_URL"); address != "" {
		return address
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.node == nil && shared.err == nil {
		if why := cannotStart(); why != "" {
			without(t, "OUTBOX_TEST_AMQP_URL is not set, and "+why)
		}
		shared.node, shared.err = start()
	}
	if shared.err != nil {
		t.Fatalf("starting a RabbitMQ: %v", shared.err)
	}
	return shared.node.URL()
}

// Node returns a running node that is the test's own, to stop and start. Settings are lines of its rabbitmq.conf. Where
// none can be started, it does not return; the test is then skipped also if rabbitmq is required, provided that there is
// one for the other tests.
func Node(t testing.TB, settings ...string) *rabbitmq.Node {
	t.Helper()
	if leftOut() {
		without(t, "OUTBOX_TEST_ONLY leaves it out")
	}
	if why := cannotStart(); why != "" {
		if os.Getenv("OUTBOX_TEST_AMQP_URL") == "" {
			without(t, why)
		}
		skip(t, "a broker of its own", why)
	}
	node, err := start(settings...)
	if err != nil {
		t.Fatalf("starting a RabbitMQ: %v", err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	return node
}

// Close stops the node that tests shared.
func Close() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.node == nil {
		return nil
	}
	return shared.node.Close()
}

func start(settings ...string) (*rabbitmq.Node, error) {
	node, err := rabbitmq.New(settings...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := node.Start(ctx); err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return node, nil
}

// cannotStart says why no node can be started.
func cannotStart() string {
	switch {
	case testing.Short():
		return "-short starts nothing"
	case !rabbitmq.Installed():
		return "there are no binaries on this machine"
	default:
		return ""
	}
}

// without fails the test if the broker is required, and otherwise skips it.
func without(t testing.TB, why string) {
	t.Helper()
	if named("OUTBOX_TEST_REQUIRE") {
		t.Fatalf("OUTBOX_TEST_REQUIRE names %s: %s", Name, why)
	}
	skip(t, Name, why)
}

func skip(t testing.TB, needs, why string) {
	t.Helper()
	skipped.Add(t.Name(), needs, why)
	t.Skipf("needs %s: %s", needs, why)
}

func leftOut() bool { return os.Getenv("OUTBOX_TEST_ONLY") != "" && !named("OUTBOX_TEST_ONLY") }

func named(key string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(key), ","), func(name string) bool { return strings.TrimSpace(name) == Name })
}

// Address is the host and port of a broker's URL, for a proxy before it.
func Address(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if u.Port() == "" {
		return u.Hostname() + ":5672"
	}
	return u.Host
}
