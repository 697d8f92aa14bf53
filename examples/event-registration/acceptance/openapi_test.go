package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

// A contract is openapi.json as the service serves it. What it promises and no test has seen is in left.
type contract struct {
	paths    map[string]map[string]any
	compiler *jsonschema.Compiler
	left     map[string]bool // "POST /path 409 event.full"
}

func newContract(t *testing.T, f *fixture) *contract {
	a := f.send(t, request{method: http.MethodGet, path: "/openapi.json"})
	require.Equal(t, http.StatusOK, a.status)
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(string(a.body)))
	require.NoError(t, err)
	c := &contract{paths: map[string]map[string]any{}, compiler: jsonschema.NewCompiler(), left: map[string]bool{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, c.compiler.AddResource("openapi.json", whole))
	var document struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Responses map[string]struct {
				Codes []string `json:"x-codes"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(a.body, &document))
	require.Equal(t, "3.1.0", document.OpenAPI)
	for path, methods := range document.Paths {
		for method, op := range methods {
			c.paths[path] = map[string]any{}
			for status, response := range op.Responses {
				if len(response.Codes) == 0 {
					response.Codes = []string{""}
				}
				for _, code := range response.Codes {
					c.left[strings.ToUpper(method)+" "+path+" "+status+" "+code] = true
				}
			}
		}
	}
	return c
}

var eventInPath = regexp.MustCompile(`^/join/v1/events/[^/]+/`)

// check validates a response against the document and crosses it off.
func (c *contract) check(t *testing.T, q request, a answer) {
	t.Helper()
	path := eventInPath.ReplaceAllString(strings.Split(q.path, "?")[0], "/join/v1/events/{id}/")
	if c.paths[path] == nil {
		require.Contains(t, []int{404, 405}, a.status, "%s is not in the document", path)
		return
	}
	content, code := "application/json", ""
	if path == "/metrics" {
		require.Equal(t, "text/plain", strings.Split(a.header.Get("Content-Type"), ";")[0])
		delete(c.left, "GET /metrics 200 ")
		return
	}
	if a.status >= 400 {
		content, code = "application/problem+json", a.code(t)
	}
	require.Equal(t, content, a.header.Get("Content-Type"))
	pointer := "openapi.json#/paths/" + escape(path) + "/" + strings.ToLower(q.method) + "/responses/" + strconv.Itoa(a.status) + "/content/" + escape(content) + "/schema"
	schema, err := c.compiler.Compile(pointer)
	require.NoError(t, err, "%s %s answers %d %s", q.method, path, a.status, a.body)
	body, err := jsonschema.UnmarshalJSON(strings.NewReader(string(a.body)))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(body), "%s", a.body)
	delete(c.left, fmt.Sprintf("%s %s %d %s", q.method, path, a.status, code))
}

func escape(text string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(text)
}

// script has who does what to an event with one seat.
var script = [][3]string{
	{"a", "cancel", ""}, {"a", "join", ""}, {"a", "join", ""}, {"b", "join", ""}, {organizer, "kick", target("z")}, {organizer, "kick", target("a")},
	{organizer, "kick", target("a")}, {"x", "kick", target("a")}, {"x", "ban", target("a")}, {"x", "unban", target("a")},
	{organizer, "ban", target("b")}, {"b", "join", ""}, {organizer, "unban", target("b")}, {organizer, "unban", target("b")},
	{"c", "join", ""}, {"c", "cancel", ""}, {"c", "cancel", ""}, {"c", "join", ""}, {"d", "join", ""},
}

// Every endpoint returns each status and error code that the document lists for it, and no others.
func TestTheDocumentIsWhatTheServiceDoes(t *testing.T) {
	f := newFixture(t, "", registration.Config{})
	c := newContract(t, f)
	ask := func(user, method, path, body string) {
		t.Helper()
		q := request{method: method, path: path, user: user, body: body}
		if method == http.MethodPost {
			q.key = uuid.NewString()
		}
		c.check(t, q, f.send(t, q))
	}
	f.snapshot(t, 1, 1, "open")
	actions := map[string]string{"join": "", "cancel": "", "kick": target("a"), "ban": target("b"), "unban": target("b")}
	reads := []string{"my", "participants", "waitlist", "stats"}
	for _, step := range script {
		ask(step[0], http.MethodPost, f.path(step[1]), step[2])
	}
	for _, read := range reads {
		for _, user := range []string{organizer, "d", "x"} {
			ask(user, http.MethodGet, f.path(read), "")
		}
		ask("a", http.MethodGet, f.path(read)+"?limit=0", "")
		ask("a", http.MethodGet, "/join/v1/events/none/"+read, "")
		ask("a", http.MethodGet, "/join/v1/events/b%20d/"+read, "")
		ask("", http.MethodGet, f.path(read), "")
	}
	for _, query := range []string{"", "?status=active&limit=1", "?status=none", "?cursor=!"} {
		ask("a", http.MethodGet, "/join/v1/me/joins"+query, "")
	}
	ask("", http.MethodGet, "/join/v1/me/joins", "")
	for action, body := range actions {
		ask("", http.MethodPost, f.path(action), body)
		ask("admin", http.MethodPost, "/join/v1/events/none/"+action, body)
		ask("admin", http.MethodPost, f.path(action), "{")
		ask("admin", http.MethodPost, f.path(action), `{"reason":"`+strings.Repeat("x", 20_000)+`"}`)
		q := request{method: http.MethodPost, path: f.path(action), user: "admin", body: body}
		c.check(t, q, f.send(t, q))
		q.key = "twice"
		f.send(t, q)
		q.path = strings.Replace(q.path, f.event, "other", 1)
		c.check(t, q, f.send(t, q))
	}
	full := *f
	full.event = "full-" + uuid.NewString()
	full.limitWaitlist(t)
	full.join(t, "a")
	q := request{method: http.MethodPost, path: full.path("join"), user: "b", key: "k"}
	c.check(t, q, full.send(t, q))
	f.snapshot(t, 9, 1, "canceled")
	ask("e", http.MethodPost, f.path("join"), "")
	ask("d", http.MethodPost, f.path("cancel"), "")
	ask("", http.MethodGet, "/healthz", "")
	ask("", http.MethodGet, "/readyz", "")
	ask("", http.MethodGet, "/metrics", "")
	checkUnwell(t, f, c, actions, append(reads, ""))
	checkInFlight(t, f, c, actions)
	checkLimited(t, f, c, actions, append(reads, ""))
	f.one().api.Drain()
	one := &fixture{replicas: f.replicas[:1]}
	q = request{method: http.MethodGet, path: "/readyz"}
	c.check(t, q, one.send(t, q))
	require.Empty(t, c.left, "promised, and not seen")
}

func TestAnUnknownPathAndAnotherMethodAreProblems(t *testing.T) {
	f := newFixture(t, "", registration.Config{})
	require.Equal(t, "request.not_found", f.send(t, request{method: http.MethodGet, path: "/nothing"}).code(t))
	wrong := f.send(t, request{method: http.MethodGet, path: f.path("join")})
	require.Equal(t, "request.method_not_allowed", wrong.code(t))
	require.Equal(t, http.MethodPost, wrong.header.Get("Allow"))
}

func checkLimited(t *testing.T, f *fixture, c *contract, actions map[string]string, reads []string) {
	t.Helper()
	limiter := httpapi.NewBuckets(0.001, 1)
	limiter.Allow(t.Context(), "a")
	limited := &fixture{event: f.event, replicas: []*replica{newReplica(t, f.dsn, registration.Config{}, httpapi.Config{Auth: auth, Limiter: limiter})}}
	checkAll(t, limited, c, actions, reads)
}

// checkAll asks for everything.
func checkAll(t *testing.T, f *fixture, c *contract, actions map[string]string, reads []string) {
	t.Helper()
	for action, body := range actions {
		q := request{method: http.MethodPost, path: f.path(action), user: "a", key: uuid.NewString(), body: body}
		c.check(t, q, f.send(t, q))
	}
	for _, read := range reads {
		q := request{method: http.MethodGet, path: f.path(read), user: "a"}
		if read == "" {
			q.path = "/join/v1/me/joins"
		}
		c.check(t, q, f.send(t, q))
	}
}

// checkUnwell asks a service that has no time, one whose database is away, and one whose tables are gone.
func checkUnwell(t *testing.T, f *fixture, c *contract, actions map[string]string, reads []string) {
	t.Helper()
	hasty := newReplica(t, f.dsn, registration.Config{}, httpapi.Config{Auth: auth, Timeout: time.Nanosecond})
	away := openReplica(t, "postgres://nobody@127.0.0.1:1/nothing", registration.Config{}, httpapi.Config{Auth: auth})
	broken := openReplica(t, t.TempDir()+"/empty.db", registration.Config{}, httpapi.Config{Auth: auth})
	for _, r := range []*replica{hasty, away, broken} {
		checkAll(t, &fixture{event: f.event, replicas: []*replica{r}}, c, actions, reads)
	}
}

// checkInFlight holds the database, so that the first request of each key waits and the second is refused.
func checkInFlight(t *testing.T, f *fixture, c *contract, actions map[string]string) {
	t.Helper()
	tx, err := f.one().db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	bearer := token(t, "flight")
	first := make(chan error, len(actions))
	second := make(chan struct {
		q request
		a answer
	}, 2*len(actions))
	for action, body := range actions {
		for range 2 {
			go func() {
				q := request{method: http.MethodPost, path: f.path(action), key: "flight", body: body}
				a, err := send(t.Context(), f.replicas[1].server, bearer, q)
				if a.status == http.StatusConflict && a.code(t) == "idempotency_key.in_flight" {
					second <- struct {
						q request
						a answer
					}{q, a}
					return
				}
				first <- err
			}()
		}
	}
	for range actions {
		got := <-second
		c.check(t, got.q, got.a)
	}
	require.NoError(t, tx.Rollback())
	for range actions {
		require.NoError(t, <-first)
	}
}

func TestForgedAndStaleTokensAreRefused(t *testing.T) {
	f := &fixture{event: "event", replicas: []*replica{newReplica(t, t.TempDir()+"/auth.db", registration.Config{}, httpapi.Config{Auth: auth})}}
	now := time.Now()
	good := jwt.MapClaims{"sub": "a", "iss": auth.Issuer, "aud": auth.Audience, "exp": now.Add(time.Hour).Unix()}
	with := func(name string, value any) jwt.MapClaims {
		out := jwt.MapClaims{}
		for k, v := range good {
			out[k] = v
		}
		out[name] = value
		if value == nil {
			delete(out, name)
		}
		return out
	}
	sign := func(method jwt.SigningMethod, c jwt.MapClaims, key any) string {
		text, err := jwt.NewWithClaims(method, c).SignedString(key)
		require.NoError(t, err)
		return text
	}
	hs := jwt.SigningMethodHS256
	other := []byte("another secret of at least 32 bytes, too")
	for name, text := range map[string]string{
		"none": "", "garbage": "a.b.c", "unsigned": sign(jwt.SigningMethodNone, good, jwt.UnsafeAllowNoneSignatureType),
		"another method": sign(jwt.SigningMethodHS512, good, auth.Secret), "another secret": sign(hs, good, other),
		"no expiry": sign(hs, with("exp", nil), auth.Secret), "expired": sign(hs, with("exp", now.Add(-time.Hour).Unix()), auth.Secret),
		"no audience": sign(hs, with("aud", nil), auth.Secret), "another audience": sign(hs, with("aud", "shop"), auth.Secret),
		"another issuer": sign(hs, with("iss", "shop"), auth.Secret), "no subject": sign(hs, with("sub", nil), auth.Secret),
		"a bad subject": sign(hs, with("sub", "a b"), auth.Secret),
	} {
		t.Run(name, func(t *testing.T) {
			a, err := send(t.Context(), f.one().server, text, request{method: http.MethodPost, path: f.path("join"), key: "k"})
			require.NoError(t, err)
			require.Equal(t, "auth.unauthorized", a.code(t))
			require.Equal(t, http.StatusUnauthorized, a.status)
		})
	}
	a, err := send(t.Context(), f.one().server, sign(hs, good, auth.Secret), request{method: http.MethodPost, path: f.path("join"), key: "k"})
	require.NoError(t, err)
	require.Equal(t, "event.not_found", a.code(t))
}

func TestPagesAreWholeAndWithoutRepeats(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 0, "open")
		f.join(t, "a", "b", "c", "d", "e")
		var users []string
		for cursor, pages := "", 0; ; pages++ {
			require.Less(t, pages, 4)
			var page struct {
				Items      []place
				NextCursor string `json:"next_cursor"`
			}
			f.get(t, organizer, "participants?limit=2&cursor="+cursor).data(t, &page)
			for _, item := range page.Items {
				users = append(users, item.UserID)
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		require.Equal(t, []string{"a", "b", "c", "d", "e"}, users)
	})
}

// FuzzBodies sends any body and key to every action: whatever it is, it is no error of the service.
func FuzzBodies(f *testing.F) {
	f.Add("kick", `{"user_id":"a"}`, "key")
	f.Add("ban", `{"user_id":"a","expires_at":"2030-01-01T00:00:00Z","reason":"x"}`, `"key"`)
	f.Add("join", `null`, "\x00")
	f.Add("unban", "{\"user_id\":\"\\ud800\"}", "")
	f.Add("cancel", `[[[[`, "k")
	fixture := newFixture(f, f.TempDir()+"/fuzz.db", registration.Config{})
	fixture.snapshot(f, 1, 2, "open")
	f.Fuzz(func(t *testing.T, action, body, key string) {
		switch action {
		case "join", "cancel", "kick", "ban", "unban":
		default:
			action = "ban"
		}
		r := httptest.NewRequest(http.MethodPost, fixture.path(action), strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token(t, "admin"))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		fixture.one().api.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}
