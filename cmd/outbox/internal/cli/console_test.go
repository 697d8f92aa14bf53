package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startConsole runs the command, and returns the address that it prints.
func (f *fixture) startConsole(args ...string) string {
	f.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	says, out := io.Pipe()
	f.streams.Out = out
	ended := make(chan int, 1)
	go func() {
		code, _, errOut := f.runIn(ctx, append([]string{"console", "--listen", "127.0.0.1:0", "-o", "json"}, args...)...)
		f.Empty(errOut)
		ended <- code
	}()
	f.T.Cleanup(func() { cancel(); require.Equal(f.T, exitOK, <-ended) })
	var said struct{ Address string }
	f.NoError(json.NewDecoder(says).Decode(&said))
	return said.Address
}

// A browser keeps cookies, and no redirects are hidden.
type consoleClient struct {
	*fixture
	http.Client
}

func (f *fixture) client() *consoleClient {
	jar, err := cookiejar.New(nil)
	f.NoError(err)
	transport := &http.Transport{}
	f.T.Cleanup(transport.CloseIdleConnections)
	return &consoleClient{f, http.Client{Jar: jar, Transport: transport, Timeout: time.Minute}}
}

func (c *consoleClient) do(method, address, host string, form url.Values) (status int, body string) {
	c.T.Helper()
	r, err := http.NewRequestWithContext(c.T.Context(), method, address, strings.NewReader(form.Encode()))
	c.NoError(err)
	if r.Host = r.URL.Host; host != "" {
		r.Host = host
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := c.Do(r)
	c.NoError(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	c.NoError(err)
	return answer.StatusCode, string(text)
}

func TestTheConsoleLetsOneBrowserInAndIsReadOnly(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		address := f.startConsole()
		base, _, _ := strings.Cut(address, "?")
		first, second := f.client(), f.client()
		status, _ := first.do("GET", base, "", nil)
		f.Equal(401, status)
		status, _ = first.do("GET", base+"?token=guess", "", nil)
		f.Equal(401, status)
		status, body := first.do("GET", address, "", nil)
		f.Equal(200, status)
		f.Contains(body, "Topics")
		f.Contains(body, "read-only")
		status, _ = first.do("GET", base+"s/outbox/dead", "", nil)
		f.Equal(200, status)
		status, _ = second.do("GET", address, "", nil)
		f.Equal(401, status, "a token is for one browser")
		status, body = first.do("POST", base+"s/outbox/pause", "", url.Values{"topic": {"orders"}, "do": {"pause"}})
		f.Equal(403, status)
		f.Contains(body, "read-only")
	})
}

func TestTheConsoleAllowsChangesToThoseWhoAskedForIt(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		address := f.startConsole("--allow-changes", "--token", "shared secret", "--by", "ann")
		base, _, _ := strings.Cut(address, "?")
		for range 2 {
			c := f.client()
			status, _ := c.do("GET", address, "", nil)
			f.Equal(200, status)
			status, body := c.do("POST", base+"s/outbox/pause", "", url.Values{"topic": {"orders"}, "do": {"pause"}, "reason": {"the printer is out"}})
			f.Equal(200, status)
			f.Contains(body, "the printer is out")
		}
		paused, err := f.admin().Paused(f.T.Context())
		f.NoError(err)
		f.Len(paused, 1)
		f.Equal("ann", paused[0].By)
	})
}

// Without a token, a page whose own name leads to this address gets nothing.
func TestTheConsoleWithoutATokenIsForThisHostAlone(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		base := f.startConsole("--without-token")
		status, _ := f.client().do("GET", base, "", nil)
		f.Equal(200, status)
		status, _ = f.client().do("GET", base, "evil.example", nil)
		f.Equal(403, status)
	})
}

func TestTheConsoleShowsSeveralDatabases(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		file := filepath.Join(t.TempDir(), "stores")
		text := fmt.Sprintf("- {name: north, dsn: %q}\n- {name: south, dsn: %q}\n", f.DB.DSN, "postgres://user:hunter2@127.0.0.1:1/none?connect_timeout=1")
		f.NoError(os.WriteFile(file, []byte(text), 0o600))
		base := f.startConsole("--without-token", "--stores", file)
		c := f.client()
		f.Eventually(func() bool {
			status, body := c.do("GET", base, "", nil)
			return status == 200 && strings.Contains(body, "north") && strings.Contains(body, `<span class="mark bad">down</span>`)
		}, time.Minute, 50*time.Millisecond)
		_, body := c.do("GET", base, "", nil)
		f.NotContains(body, "hunter2")
		status, _ := c.do("GET", base+"s/north/", "", nil)
		f.Equal(200, status)
	})
}

func TestBadConsolesAreRefused(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		bad := filepath.Join(t.TempDir(), "stores")
		f.NoError(os.WriteFile(bad, []byte("north\n"), 0o600))
		for _, args := range [][]string{
			{"--listen", "0.0.0.0:0"}, {"--listen", ":0"}, {"--listen", "127.0.0.1:x"}, {"--token", "a", "--without-token"}, {"--stores", bad},
			{"--stores", bad + "-missing"}, {"--dry-run"},
		} {
			code, _, errOut := f.run(append([]string{"console"}, args...)...)
			f.Equal(exitUsage, code, "%v: %s", args, errOut)
		}
	})
}
