package readme

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/console"
	"github.com/incursa/watermill-outbox/stores"
)

func userOf(r *http.Request) string { return r.Header.Get("X-User") }

// mount puts the console into the mux of a service.
func mount(mux *http.ServeMux, provider stores.Provider, logger watermill.LoggerAdapter) (closeConsole func() error, err error) {
	web, err := console.New(console.Config{
		Provider: provider, // stores.NewStatic of one store, or all your tenants
		Authorize: func(r *http.Request, a console.Action) error {
			user := userOf(r)
			switch {
			case user == "":
				return console.ErrUnauthenticated
			case a.Right == console.View || user == "ann":
				return nil
			}
			return errors.New("only ann may do that")
		},
		AllowChanges: true,
		Actor:        userOf,
		Redact: func(r *http.Request, m *outbox.Message) bool {
			delete(m.Headers, "authorization")
			return m.Topic != "payments"
		},
		Prefix: "/outbox",
	}, logger)
	if err != nil {
		return nil, err
	}
	mux.Handle("/outbox/", web)
	return web.Close, nil
}

func TestTheConsoleOfItsPage(t *testing.T) {
	provider, err := stores.NewStatic()
	require.NoError(t, err)
	mux := http.NewServeMux()
	closeConsole, err := mount(mux, provider, nil)
	require.NoError(t, err)
	for user, want := range map[string]int{"": 401, "bob": 200} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/outbox/", nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		require.Equal(t, want, w.Code)
	}
	require.NoError(t, closeConsole())
}
