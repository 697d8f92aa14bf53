package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A listener that stops itself waited for itself, with everybody who publishes.
func TestTrap_AListenerStopsItself(t *testing.T) {
	woken := make(chan []string, 2)
	var stop func()
	stop = OnWake("listeners", func(topics []string) {
		stop()
		woken <- topics
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		wakeStore("listeners", "orders")
		wakeStore("listeners", "orders again")
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for itself")
	}
	require.Equal(t, []string{"orders"}, <-woken)
	require.Empty(t, woken)
	stop() // again changes nothing
}
