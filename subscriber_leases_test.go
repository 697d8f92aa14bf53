package outbox

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/quiet"
)

// Quick handlers leave nothing to renew, which would otherwise show that there are connections again.
func TestTrap_AWindowWidensWhileNothingHasToBeRenewed(t *testing.T) {
	t.Parallel()
	window := flow.NewWindow(flow.Limits{Messages: 2, PerTopic: 2, Bytes: 1, Batch: 2}, (*Delivery).weight)
	window.Narrow()
	l := &leases{
		outbox: &Outbox{troubles: quiet.New(watermill.NopLogger{})}, holdings: flow.NewLeases((*Delivery).owner), spare: newSpare(nil),
		window: window, lease: time.Millisecond, logger: watermill.NopLogger{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.renewAll(ctx) }()
	select {
	case <-window.Freed():
	case <-time.After(10 * time.Second):
		t.Error("it stays narrow")
	}
	cancel()
	<-ended
	require.Equal(t, 2, window.Allow([]string{"orders"}).Limit)
}
