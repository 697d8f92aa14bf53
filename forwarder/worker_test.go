package forwarder

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	outbox "github.com/incursa/watermill-outbox"
)

// newTestWorker may hold so many.
func newTestWorker(held int, publisher message.Publisher) *worker {
	config := Config{Topics: []string{"orders"}}
	config.setDefaults()
	logger := watermill.NopLogger{}
	f := &Forwarder{
		config: config, publisher: publisher, breaker: newBreaker(config, logger), logger: logger, closing: make(chan struct{}), calls: newCalls(),
	}
	return &worker{Forwarder: f, waiting: newWaiting(held, "orders", logger), parked: newParked(config, nil, logger)}
}

// partAway publishes what is of no stream.
type partAway struct{}

func (partAway) Publish(_ string, messages ...*message.Message) error {
	batch := &BatchError{Errs: make([]error, len(messages))}
	for i, msg := range messages {
		if msg.Metadata.Get(HeaderStreamKey) != "" {
			batch.Errs[i] = outbox.Unavailable(errClosing)
		}
	}
	return batch
}

func (partAway) Close() error { return nil }

// Messages of a stream whose part of the broker is away fill all the room there is. What else comes in the same batch, or in a
// later one behind more of them, is published without waiting for room.
func TestAPartThatIsAwayAndFillsTheRoomHoldsUpNoOther(t *testing.T) {
	for name, batches := range map[string][]string{
		"with others":  {"away here away here away here", "away here away here"},
		"first alone":  {"away away", "away here away here"},
		"of one batch": {"away away away here"},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			w := newTestWorker(2, partAway{})
			var seq outbox.WorkItemID
			for _, batch := range batches {
				var items []*item
				for key := range strings.FieldsSeq(batch) {
					seq++
					msg := message.NewMessage(watermill.NewUUID(), nil)
					it := &item{received: msg, outgoing: msg, lane: lane{destination: "orders"}, seq: seq}
					if key == "away" {
						it.lane.key = key
						msg.Metadata.Set(HeaderStreamKey, key)
					}
					items = append(items, it)
				}
				began := time.Now()
				require.Empty(t, w.advance(items))
				require.Less(t, time.Since(began), lookAround/2, "it waited for room")
				for _, it := range items {
					if it.lane.key == "" {
						<-it.received.Acked()
					}
				}
			}
		})
	}
}

// One of its stream went back for want of room: a later one goes back, too, though there is room by then.
func TestNothingIsHeldThatWouldOvertakeWhatIsParked(t *testing.T) {
	w := newTestWorker(10, nil)
	stream := lane{destination: "orders", key: "a"}
	w.parked.lanes[stream] = []parkedItem{{seq: 1}}

	later := &item{lane: stream, seq: 2, received: message.NewMessage("2", nil), err: outbox.Unavailable(errClosing)}
	require.True(t, w.hold(later, itsLane, time.Now()))
	require.True(t, w.waiting.isEmpty())
	require.NotEmpty(t, w.waiting.added, "retry looks after what is parked")
	select {
	case <-later.received.Nacked():
	default:
		require.Fail(t, "it is still held")
	}

	other := &item{lane: lane{destination: "orders", key: "b"}, seq: 3, received: message.NewMessage("3", nil)}
	require.True(t, w.hold(other, itsLane, time.Now()))
	require.Equal(t, []*item{other}, w.waiting.all())
}

// What goes back in one batch goes back for the same time, so that it is settled in one group.
func TestDelaysComeInSteps(t *testing.T) {
	require.Equal(t, 3*time.Second, inSteps(3*time.Second))
	require.Equal(t, 3100*time.Millisecond, inSteps(3*time.Second+time.Nanosecond))
	require.Equal(t, 3100*time.Millisecond, inSteps(3100*time.Millisecond-time.Microsecond))
}
