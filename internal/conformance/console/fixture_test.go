package console_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/console"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/stores"
)

// A fixture is an outbox with a console.
type fixture struct {
	*testoutbox.Outbox
	admin *admin.Admin
	url   string // of the console
	store string // the address of the outbox in it
}

func allow(*http.Request, console.Action) error { return nil }

// serve starts a console for the outbox under a name.
func serve(o *testoutbox.Outbox, name string, config console.Config) *fixture {
	o.T.Helper()
	a, err := admin.New(o.Outbox)
	o.NoError(err)
	f := &fixture{Outbox: o, admin: a}
	if config.Provider == nil {
		config.Provider = f.provider(name, o.DB.DB)
	}
	if config.SampleInterval == 0 {
		config.SampleInterval = time.Second
	}
	web, err := console.New(config, nil)
	o.NoError(err)
	server := httptest.NewServer(web)
	o.T.Cleanup(func() {
		o.NoError(web.Close())
		server.Close()
	})
	f.url, f.store = server.URL+"/", server.URL+"/s/"+name+"/"
	return f
}

// provider has the outbox as its only store, through a pool.
func (f *fixture) provider(name string, pool *sql.DB) stores.Provider {
	f.T.Helper()
	s, err := stores.New(pool, stores.Database{ID: name, Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, outbox.Config{}, nil)
	f.NoError(err)
	provider, err := stores.NewStatic(s)
	f.NoError(err)
	return provider
}

func forEach(t *testing.T, test func(f *fixture)) {
	t.Helper()
	testoutbox.ForEach(t, func(_ *testing.T, o *testoutbox.Outbox) {
		test(serve(o, "shop", console.Config{
			Authorize: allow, AllowChanges: true, Actor: func(*http.Request) string { return "ann" },
			Redact: func(*http.Request, *outbox.Message) bool { return true },
		}))
	})
}

// end publishes n messages and has each fail for good with what is returned for its number, or be done without an error.
func (f *fixture) end(topic string, n int, reason func(i int) error) {
	f.T.Helper()
	const batch = 1000
	for from := 0; from < n; from += batch {
		size := min(batch, n-from)
		f.Enqueue(topic, from, size)
		for settled := 0; settled < size; {
			claimed, err := f.Claim(f.T.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topic}}, Limit: batch, Lease: time.Minute})
			f.NoError(err)
			var settlements []outbox.Settlement
			for _, c := range claimed {
				s := outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Ack}
				var number int
				_, err := fmt.Sscan(c.UUID, &number)
				f.NoError(err)
				if s.Err = reason(number); s.Err != nil {
					s.Outcome = outbox.Fail
				}
				settlements = append(settlements, s)
			}
			_, err = f.Settle(f.T.Context(), f.DB.DB, settlements)
			f.NoError(err)
			settled += len(claimed)
		}
	}
}

// full says whether the test runs at full size: OUTBOX_TEST_CONSOLE=full.
func full() bool { return os.Getenv("OUTBOX_TEST_CONSOLE") == "full" }

// sized is how many of something there are.
func sized(byDefault, atFullSize int) int {
	if full() {
		return atFullSize
	}
	return byDefault
}

// rare is the error of 12 messages, spread over all n.
func rare(n int) func(i int) error {
	return func(i int) error {
		if i%(n/12) == n/24 && i < n/12*12 {
			return fmt.Errorf("no such customer %d", i)
		}
		return errors.New("the bank did not answer")
	}
}
