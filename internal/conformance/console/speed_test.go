package console_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/console"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/stores"
)

const quick = 200 * time.Millisecond // for a page, at the 95th percentile

// Pages are quick beside a million kept messages, 100,000 dead letters and 200 stores, and what claims of another process notice of
// them is printed. The figures are those of OUTBOX_TEST_CONSOLE=full; by default there is less of everything.
func TestLong_PagesAreQuickAndClaimsHardlyNotice(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		f := serve(o, "shop", console.Config{Provider: many(o, sized(20, 200)), Authorize: allow, AllowChanges: true, SampleInterval: 10 * time.Second})
		begun := time.Now()
		f.end("orders", sized(20_000, 1_000_000), func(int) error { return nil })
		failed := sized(3_000, 100_000)
		f.end("bills", failed, rare(failed))
		t.Logf("%s: made in %v", o.DB.Name, time.Since(begun).Round(time.Second))
		list, err := f.admin.Failed(t.Context(), admin.ListParams{Limit: 1})
		o.NoError(err)
		id := list.Messages[0].ID.String()

		paths := []string{
			"", "topic?name=orders", "search", "search?topic=bills", "search?error=no+such+customer", "search?uuid=nobody", "dead", "dead?error=no+such+customer",
			"dead?topic=bills", "message/" + id, "act?do=requeue&error=no+such+customer", "act?do=cancel&topic=orders", "streams", "joins?key=a", "log", "inbox",
			"workers", "schema", "audit", "../../", "../../activity",
		}
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		w := f.startWorker()
		w.claims(1) // the first are of new connections
		var alone, beside []time.Duration
		visited, claims := 0, sized(500, 2000)
		for range sized(3, 15) {
			alone = append(alone, w.claims(claims)...)
			stop := f.read(client, paths, &visited)
			beside = append(beside, w.claims(claims)...)
			stop()
			w.claims(2 * claims) // while the last searches end
		}
		f.NoError(w.Stdin.Close())
		one, two := percentile(alone), percentile(beside)
		t.Logf("%s: claims p95 %v alone, %v while %d pages are read (%+.0f %%)", o.DB.Name, one, two, visited, 100*(two.Seconds()/one.Seconds()-1))

		took := map[string][]time.Duration{}
		visits := sized(40, 60) // of each page, in turn
		for range visits {
			for _, path := range paths {
				took[path] = append(took[path], f.visit(client, path))
			}
		}
		for _, path := range paths {
			p95 := percentile(took[path])
			t.Logf("%s: %-40s p50 %6.1f ms, p95 %6.1f ms", o.DB.Name, path, took[path][visits/2].Seconds()*1e3, p95.Seconds()*1e3)
			o.Less(p95, quick, path)
		}
	})
}

// many are the outbox, and others that all have the same small database.
func many(o *testoutbox.Outbox, n int) stores.Provider {
	o.T.Helper()
	small := testoutbox.New(o.T, o.DB.Open(o.T))
	var all []*stores.Store
	for i := range n {
		of, id := small, fmt.Sprintf("shop-%03d", i)
		if i == 0 {
			of, id = o, "shop"
		}
		s, err := stores.New(of.DB.DB, stores.Database{ID: id, Dialect: testoutbox.Dialect(o.DB.Name), Schema: of.DB.Schema}, outbox.Config{}, nil)
		o.NoError(err)
		all = append(all, s)
	}
	provider, err := stores.NewStatic(all...)
	o.NoError(err)
	return provider
}

// visit reads a page, and returns how long that took.
func (f *fixture) visit(client *http.Client, path string) time.Duration {
	f.T.Helper()
	begun := time.Now()
	r, err := http.NewRequestWithContext(f.T.Context(), http.MethodGet, f.store+path, nil)
	f.NoError(err)
	answer, err := client.Do(r)
	f.NoError(err)
	defer func() { f.NoError(answer.Body.Close()) }()
	_, err = io.Copy(io.Discard, answer.Body)
	f.NoError(err)
	f.Equal(200, answer.StatusCode, path)
	return time.Since(begun)
}

// read reads pages in a loop, after those that were visited, until stop is called.
func (f *fixture) read(client *http.Client, paths []string, visited *int) (stop func()) {
	end := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for ; ; *visited++ {
			select {
			case <-end:
				return
			case <-ticker.C:
				f.visit(client, paths[*visited%len(paths)])
			}
		}
	})
	return func() {
		close(end)
		reader.Wait()
	}
}

// percentile sorts, and returns the 95th.
func percentile(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*95/100]
}
