package console

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A browser that leaves, or never reads, holds up nobody, and there are not too many of them.
func TestWatchersAreToldAndHoldUpNobody(t *testing.T) {
	c := newConsole(t, Config{Authorize: allow, MaxWatchers: 2})
	server := httptest.NewServer(c)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	watch := func() *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events", nil)
		require.NoError(t, err)
		answer, err := client.Do(r)
		require.NoError(t, err)
		return answer
	}
	deaf, reader := watch(), watch() // the first is never read
	t.Cleanup(func() { require.NoError(t, deaf.Body.Close()) })
	require.Equal(t, "text/event-stream", reader.Header.Get("Content-Type"))
	third := watch()
	require.Equal(t, http.StatusNoContent, third.StatusCode)
	require.NoError(t, third.Body.Close())

	lines := bufio.NewScanner(reader.Body)
	told := time.Now()
	for range 100_000 {
		c.watchers.tell()
	}
	require.Less(t, time.Since(told), time.Minute)
	for lines.Scan() && lines.Text() != "data: new" {
	}
	require.Equal(t, "data: new", lines.Text())
	require.NoError(t, reader.Body.Close())
	require.Eventually(t, func() bool { // who has left makes room
		c.watchers.mu.Lock()
		defer c.watchers.mu.Unlock()
		return len(c.watchers.all) == 1
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { // and Close ends the others
		c.watchers.mu.Lock()
		defer c.watchers.mu.Unlock()
		return len(c.watchers.all) == 0
	}, time.Minute, 5*time.Millisecond)
}
