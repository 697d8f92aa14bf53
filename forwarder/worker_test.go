package forwarder

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// One of its stream went back for want of room: a later one goes back, too, though there is room by then.
func TestNothingIsHeldThatWouldOvertakeWhatIsParked(t *testing.T) {
	config := Config{Topics: []string{"orders"}}
	config.setDefaults()
	logger := watermill.NopLogger{}
	f := &Forwarder{config: config, breaker: newBreaker(config, logger), logger: logger, closing: make(chan struct{})}
	w := &worker{Forwarder: f, waiting: newWaiting(10, "orders", logger), parked: newParked(config, nil, logger)}
	stream := lane{destination: "orders", key: "a"}
	w.parked.lanes[stream] = []parkedItem{{seq: 1}}

	later := &item{lane: stream, seq: 2, received: message.NewMessage("2", nil), err: outbox.Unavailable(errClosing)}
	require.True(t, w.hold(later, itsLane))
	require.True(t, w.waiting.isEmpty())
	require.NotEmpty(t, w.waiting.added, "retry looks after what is parked")
	select {
	case <-later.received.Nacked():
	default:
		require.Fail(t, "it is still held")
	}

	other := &item{lane: lane{destination: "orders", key: "b"}, seq: 3, received: message.NewMessage("3", nil)}
	require.True(t, w.hold(other, itsLane))
	require.Equal(t, []*item{other}, w.waiting.all())
}
