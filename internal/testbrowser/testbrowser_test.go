package testbrowser_test

import (
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testbrowser"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, err := range []error{skipped.Report(), goleak.Find()} {
		if err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const form = `<!doctype html><title>t</title><link rel=icon href="data:,"><form action=/answer><input id=a name=a><button>Go</button></form>`

func pages(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, form) })
	mux.HandleFunc("GET /answer", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<!doctype html><title>t</title><link rel=icon href="data:,"><p>%s</p>`, r.FormValue("a"))
	})
	mux.HandleFunc("GET /bad", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "img-src 'none'; script-src 'self' 'unsafe-inline'")
		fmt.Fprint(w, form, `<img src=/x.png><script src=/missing.js></script><script>console.error("first"); throw new Error("second")</script>`)
	})
	mux.HandleFunc("GET /script", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<!doctype html><title>t</title><link rel=icon href="data:,"><p></p><script>document.querySelector("p").textContent = "ran"</script>`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func TestABrowserFillsFormsAndSavesPictures(t *testing.T) {
	b, server := testbrowser.Start(t), pages(t)
	require.EqualValues(t, http.StatusOK, b.Open(server.URL))
	b.Window(400, 300, true)
	require.Equal(t, true, b.Eval(`matchMedia("(prefers-color-scheme: dark)").matches`))
	b.Fill("#a", "socks")
	require.EqualValues(t, http.StatusOK, b.Click("button"))
	require.Equal(t, "socks", b.Text("p"))
	b.Until(`document.readyState == "complete"`)
	file := filepath.Join(t.TempDir(), "pictures", "answer.png")
	b.Picture(file)
	picture, err := os.Open(file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, picture.Close()) })
	size, err := png.DecodeConfig(picture)
	require.NoError(t, err)
	require.Equal(t, 400, size.Width)
	b.Quiet()
}

func TestPagesRunNoScripts(t *testing.T) {
	b, server := testbrowser.Start(t), pages(t)
	b.Open(server.URL + "/script")
	require.Equal(t, "ran", b.Text("p"))
	b.WithoutScripts()
	b.Open(server.URL + "/script")
	require.Empty(t, b.Text("p"))
	b.Quiet()
}

func TestProblemsAreSeen(t *testing.T) {
	b, server := testbrowser.Start(t), pages(t)
	b.Open(server.URL + "/bad")
	b.Until(`document.readyState == "complete"`) // although the policy forbids to evaluate text
	found := fmt.Sprint(b.Problems())
	for _, part := range []string{"first", "second", "missing.js", "Content Security Policy"} {
		require.Contains(t, found, part)
	}
	require.EqualValues(t, http.StatusNotFound, b.Open(server.URL+"/nowhere"))
	require.Contains(t, fmt.Sprint(b.Problems()), "404")
	require.Empty(t, b.Problems())
}
