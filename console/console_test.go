package console

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unreachable is a database that nothing connects to.
type unreachable struct{}

func (unreachable) Connect(context.Context) (driver.Conn, error) {
	return nil, errors.New("no route to <host>")
}
func (u unreachable) Driver() driver.Driver { return nil }

func newStores(t *testing.T, ids ...string) *stores.Static {
	t.Helper()
	var all []*stores.Store
	for _, id := range ids {
		db := sql.OpenDB(unreachable{})
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		s, err := stores.New(db, stores.Database{ID: id, Dialect: outbox.SQLite{}}, outbox.Config{}, nil)
		require.NoError(t, err)
		all = append(all, s)
	}
	provider, err := stores.NewStatic(all...)
	require.NoError(t, err)
	return provider
}

func allow(*http.Request, Action) error { return nil }

func newConsole(t *testing.T, config Config) *Console {
	t.Helper()
	if config.Provider == nil {
		config.Provider = newStores(t, "north", "south/../<b>")
	}
	c, err := New(config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func (c *Console) answer(t *testing.T, method, path string, edit ...func(*http.Request)) (status int, body string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(""))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, f := range edit {
		f(r)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	return w.Code, w.Body.String()
}

// paths are all routes, with something in the place of each variable.
func (c *Console) paths(t *testing.T) (paths [][2]string) {
	t.Helper()
	for _, route := range c.routes {
		method, path, found := strings.Cut(route, " ")
		require.True(t, found)
		path = strings.NewReplacer("{$}", "", "{store}", "north", "{id}", "01a20638-d16b-7a53-9098-b37217ac666e", "{act}", "1", "{file}", "console.css").Replace(path)
		paths = append(paths, [2]string{method, path})
	}
	require.Greater(t, len(paths), 20)
	return paths
}

func TestBadConfigsAreRefusedByName(t *testing.T) {
	provider := newStores(t, "north")
	for name, config := range map[string]Config{
		"Provider":       {Authorize: allow},
		"Authorize":      {Provider: provider},
		"Prefix":         {Provider: provider, Authorize: allow, Prefix: "outbox/"},
		"SampleInterval": {Provider: provider, Authorize: allow, SampleInterval: time.Millisecond},
		"MaxWatchers":    {Provider: provider, Authorize: allow, MaxWatchers: -1},
	} {
		_, err := New(config, nil)
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "console.Config."+name, bad.Field)
	}
}

func TestNobodyGetsInWithoutAGrant(t *testing.T) {
	for refusal, want := range map[error]int{errors.New("not you"): 403, fmt.Errorf("who? %w", ErrUnauthenticated): 401} {
		c := newConsole(t, Config{AllowChanges: true, Authorize: func(*http.Request, Action) error { return refusal }})
		for _, p := range c.paths(t) {
			status, body := c.answer(t, p[0], p[1])
			require.Equal(t, want, status, p)
			require.NotContains(t, body, refusal.Error(), "the reason is for the log")
		}
		status, _ := c.answer(t, "GET", "/s/north/assets/console.css")
		require.NotEqual(t, 200, status, "a path that contains another's is not that one")
	}
}

// Who may view may not change, and who may do one thing in one store may do no other and nowhere else.
func TestEachRightIsAskedFor(t *testing.T) {
	needs := map[string]Right{"/act": Requeue, "/stream": Streams, "/join": Joins, "/group": Groups, "/pause": Pause, "/edit/": Edit}
	asked := map[Right]bool{}
	c := newConsole(t, Config{AllowChanges: true, Authorize: func(_ *http.Request, a Action) error {
		asked[a.Right] = true
		if a.Right == View {
			return nil
		}
		return errors.New("no")
	}})
	post := func(values string) func(*http.Request) {
		return func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(values)) }
	}
	for _, p := range c.paths(t) {
		if p[0] != "POST" {
			continue
		}
		clear(asked)
		status, _ := c.answer(t, p[0], p[1], post("do=requeue&topic=a&id=01a20638-d16b-7a53-9098-b37217ac666e"))
		require.Equal(t, 403, status, p)
		for part, right := range needs {
			if strings.Contains(p[1], part) {
				require.True(t, asked[right], p)
			}
		}
	}
}

func TestTheConsoleIsReadOnlyUnlessItSaysMore(t *testing.T) {
	c := newConsole(t, Config{Authorize: allow})
	posts := 0
	for _, p := range c.paths(t) {
		if p[0] == "POST" {
			posts++
			status, body := c.answer(t, p[0], p[1], func(r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader("do=discard&id=01a20638-d16b-7a53-9098-b37217ac666e"))
			})
			require.Equal(t, 403, status, p)
			require.Contains(t, body, "read-only")
		}
	}
	require.GreaterOrEqual(t, posts, 6)
}

func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	c := newConsole(t, Config{AllowChanges: true, Authorize: allow})
	for _, p := range c.paths(t) {
		for _, forged := range []func(*http.Request){
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
			func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
			func(r *http.Request) { r.Header.Set("Origin", "null") },
		} {
			if p[0] == "POST" {
				status, body := c.answer(t, p[0], p[1], forged)
				require.Equal(t, 403, status, p)
				require.Contains(t, body, "another site")
			}
		}
		if p[0] == "POST" { // nor has a GET any effect
			status, _ := c.answer(t, "PUT", p[1])
			require.Equal(t, http.StatusMethodNotAllowed, status, p)
		}
	}
}

// A store that is down says so, and the console goes on.
func TestAStoreThatIsDownSaysSo(t *testing.T) {
	c := newConsole(t, Config{Authorize: allow, Prefix: "/admin/outbox", RedactError: func(text string) string { return strings.ReplaceAll(text, "route", "…") }})
	var body string
	require.Eventually(t, func() bool {
		_, body = c.answer(t, "GET", "/admin/outbox/")
		return strings.Count(body, "no … to &lt;host&gt;") == 2
	}, time.Minute, 10*time.Millisecond)
	require.Contains(t, body, "south/../&lt;b&gt;")
	for _, link := range regexp.MustCompile(`(?:href|src|action|data-events)="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		require.Regexp(t, `^(/admin/outbox/|#)`, link[1])
	}
	for _, path := range []string{"", "dead", "search", "streams", "log", "inbox", "workers", "schema", "audit", "joins?key=a", "topic?name=a"} {
		require.Eventually(t, func() bool {
			status, body := c.answer(t, "GET", "/admin/outbox/s/x_"+fmt.Sprintf("%x", "south/../<b>")+"/"+path)
			return status == 503 && strings.Contains(body, "no … to &lt;host&gt;")
		}, time.Minute, time.Millisecond, path)
	}
	status, _ := c.answer(t, "GET", "/admin/outbox")
	require.Equal(t, 303, status)
}

func TestBadAddressesAreToldSo(t *testing.T) {
	c := newConsole(t, Config{Authorize: allow, AllowChanges: true})
	for path, want := range map[string]int{
		"/nowhere": 404, "/assets/console.go": 404, "/activity/7": 404, "/activity/x": 404, "/s/east/": 404, "/s/north/message/x": 404, "/s/north/join/x": 404,
		"/s/north/search?since=yesterday": 400, "/s/north/search?state=lost": 400, "/s/north/search?after=x": 400, "/s/north/dead?since=1h&until=2h": 400,
		"/s/north/act": 400, "/s/north/act?do=explode": 400, "/s/north/act?do=requeue&id=x": 400, "/s/north/act?do=delay&delay=-1s": 400,
		"/s/north/act?do=discard&chosen=1": 400, "/s/north/topic": 400,
		"/s/north/search?topic=" + strings.Repeat("x", 300): 400, "/s/north/audit?before=x": 400, "/s/north/log/dead?group=a&after=x": 400,
		"/s/north/act?do=requeue" + strings.Repeat("&id=01a20638-d16b-7a53-9098-b37217ac666e", 1001): 400,
	} {
		require.Eventually(t, func() bool { // a page may come before its answer
			status, _ := c.answer(t, "GET", path)
			return status == want
		}, time.Minute, time.Millisecond, "%.60s: %d", path, want)
	}
	for values, want := range map[string]int{ // an act that nobody has counted
		"do=requeue": 400, "do=requeue&counted=3": 400, "do=requeue&counted=x&until=2026-01-01": 400,
		"do=discard&chosen=1&counted=3&until=2026-01-01": 400,
	} {
		status, _ := c.answer(t, "POST", "/s/north/act", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(values)) })
		require.Equal(t, want, status, values)
	}
}

// What is wrong with an address is said in its own words, not in those of Go.
func TestBadAddressesAreNamedAsTheyAre(t *testing.T) {
	c := newConsole(t, Config{Authorize: allow, AllowChanges: true})
	for path, want := range map[string]string{
		"search?after=1": `after: &#34;1&#34; is not the end of a page`, "dead?after=1": `after: &#34;1&#34; is not the end of a page`, "topic": "name: is empty",
		"act?do=discard&chosen=1": "id: is missing; choose at least one message", "act?do=requeue&topic=" + strings.Repeat("x", 300): "topic: ",
	} {
		require.Eventually(t, func() bool { // a page may come before its answer
			status, body := c.answer(t, "GET", "/s/north/"+path)
			return status == 400 && strings.Contains(body, want) && !strings.Contains(body, "outbox: ")
		}, time.Minute, time.Millisecond, path)
	}
}

// Only the stores that a reader may view are in the list.
func TestStoresOfOthersAreNotListed(t *testing.T) {
	c := newConsole(t, Config{Authorize: func(_ *http.Request, a Action) error {
		if a.Store == "" || a.Store == "north" {
			return nil
		}
		return errors.New("not yours")
	}})
	_, body := c.answer(t, "GET", "/")
	require.Contains(t, body, "north")
	require.NotContains(t, body, "south")
	status, _ := c.answer(t, "GET", "/s/"+slug("south/../<b>")+"/")
	require.Equal(t, 403, status)
}

func TestSlugsAreDifferent(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"a", "A", "a/b", "..", ".", "x_61", "x_2e", "é", " ", "%2F", "a_b", strings.Repeat("x", 255)} {
		s := slug(id)
		require.Equal(t, s, url.PathEscape(s))
		require.Empty(t, seen[s], id)
		seen[s] = id
	}
}
