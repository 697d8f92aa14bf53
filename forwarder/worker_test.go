package forwarder

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

// newTestWorker may hold so many.
func newTestWorker(held int, publisher message.Publisher) *worker {
	config := Config{Topics: []string{"orders"}}
	config.setDefaults()
	logger := watermill.NopLogger{}
	f := &Forwarder{
		config: config, publisher: publisher, breaker: newBreaker(config, logger), logger: logger, closing: make(chan struct{}), calls: newCalls(),
	}
	return &worker{Forwarder: f, waiting: newWaiting(held, "orders", logger)}
}

// A call that hangs is named. A callback is suspected only if nothing else has an excuse.
func TestOnlyWhatHangsIsNamed(t *testing.T) {
	f := newTestWorker(1, partAway{}).Forwarder
	slow := errors.New("the database is slow")
	require.Equal(t, errHeldUp, f.leftBehind(nil))
	require.EqualError(t, f.leftBehind(slow), slow.Error())
	end := f.calls.begin("orders", 3)
	for _, err := range []error{nil, slow} {
		var hung *HungError
		require.ErrorAs(t, f.leftBehind(err), &hung)
		require.Equal(t, 3, hung.Messages)
	}
	require.ErrorIs(t, f.leftBehind(slow), slow)
	end()
	require.Equal(t, errHeldUp, f.leftBehind(nil))
}

func TestOnStateMayAskForTheState(t *testing.T) {
	var f Forwarder
	var heard, asked []State
	config := Config{Topics: []string{"orders"}, OnState: func(s State) {
		heard, asked = append(heard, s), append(asked, f.State())
	}}
	config.setDefaults()
	f.breaker = newBreaker(config, watermill.NopLogger{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.breaker.failed(errClosing)
		f.breaker.failed(errClosing)
		f.breaker.succeeded()
		f.breaker.reached()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		require.Fail(t, "State waits for OnState, which waits for State")
	}
	require.Equal(t, []State{Open, Closed}, heard)
	require.Equal(t, heard, asked)
}

// partAway publishes what is of no stream.
type partAway struct{}

func (partAway) Publish(_ string, messages ...*message.Message) error {
	batch := &BatchError{Errs: make([]error, len(messages))}
	for i, msg := range messages {
		if msg.Metadata.Get(outbox.HeaderStreamKey) != "" {
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
			for _, batch := range batches {
				var items []*item
				for key := range strings.FieldsSeq(batch) {
					msg := message.NewMessage(watermill.NewUUID(), nil)
					it := &item{received: msg, outgoing: msg, lane: lane{destination: "orders"}}
					if key == "away" {
						it.lane.key = key
						msg.Metadata.Set(outbox.HeaderStreamKey, key)
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

// After a message of a stream has gone back, the rest of its claim goes back too, even if there is room by then. Later claims do not.
func TestNothingIsHeldThatWouldOvertakeWhatWentBack(t *testing.T) {
	w := newTestWorker(10, nil)
	first, second := base.NewOwnerToken(), base.NewOwnerToken()
	seq := outbox.WorkItemID(0)
	newItem := func(key string, claim outbox.OwnerToken) *item {
		seq++
		return &item{lane: lane{destination: "orders", key: key}, claim: claim, seq: seq, received: message.NewMessage(watermill.NewUUID(), nil), err: outbox.Unavailable(errClosing)}
	}
	goesBack := func(it *item) bool {
		require.True(t, w.hold(it, itsLane, time.Now()))
		select {
		case <-it.received.Nacked():
			return true
		default:
			return false
		}
	}
	before, refused := newItem("a", first), newItem("a", first)
	w.refuse(refused, errClosing)
	<-refused.received.Nacked()

	require.True(t, w.waiting.blocks(newItem("a", first)))
	require.True(t, goesBack(newItem("a", first)))
	require.False(t, goesBack(newItem("b", first)), "another stream")
	require.False(t, goesBack(newItem("", first)), "of no stream")
	again := newItem("a", second)
	require.False(t, w.waiting.blocks(again), "it was claimed later")
	require.False(t, w.waiting.isStopped(before), "it came before it")

	w.waiting.forget(second)
	require.Empty(t, w.waiting.stopped)
	w.refuse(newItem("b", first), errClosing)
	w.waiting.forget(second)
	require.True(t, w.waiting.isStopped(newItem("b", first)), "others of it wait")
}

// The messages of a stream are handed out one after the other: when the first one's time is over, the next may still have some.
func TestTrap_AMessageWhoseTimeIsOverIsNotOvertaken(t *testing.T) {
	w := newTestWorker(10, partAway{})
	claim := base.NewOwnerToken()
	var batch []*item
	for i := range 2 {
		msg := message.NewMessage(watermill.NewUUID(), nil)
		it := &item{received: msg, outgoing: msg, lane: lane{destination: "orders", key: "a"}, claim: claim, seq: outbox.WorkItemID(i)}
		batch = append(batch, it)
	}
	over, end := context.WithCancel(t.Context())
	end()
	batch[0].received.SetContext(over)
	require.Empty(t, w.advance(batch))
	<-batch[0].received.Nacked()
	select {
	case <-batch[1].received.Nacked():
	case <-batch[1].received.Acked():
		require.Fail(t, "the second was published")
	}
}

// A message that fails by itself is tried again after the others. Its stream moves with it, in order.
func TestWhatIsInDoubtMovesBehindWithItsStream(t *testing.T) {
	items := map[string]*item{}
	run := func(names string) (run []*item) {
		for name := range strings.FieldsSeq(names) {
			if items[name] == nil {
				items[name] = &item{lane: lane{destination: "orders", key: strings.Trim(name, "0123456789-")}, received: message.NewMessage(name, nil)}
			}
			run = append(run, items[name])
		}
		return run
	}
	names := func(run []*item) string {
		var names []string
		for _, it := range run {
			names = append(names, it.received.UUID)
		}
		return strings.Join(names, " ")
	}
	all := run("a1 b1 a2 b2")
	require.Equal(t, "b1 b2 a1 a2", names(moveBehind(all, all[:1])))
	all = run("-1 -2 -3")
	require.Equal(t, "-2 -3 -1", names(moveBehind(all, all[:1])), "messages without a stream have no order")

	w := newWaiting(10, "orders", watermill.NopLogger{})
	for _, it := range run("a1 b1 c1 a2 b2 c2 a3") {
		added, _ := w.add(it, itsLane, time.Now())
		require.True(t, added)
	}
	for _, it := range run("a1 b1 c2") {
		it.err = errors.New("it fails by itself")
	}
	items["c1"].err = outbox.Unavailable(errClosing)
	batch := run("a1 b1 c1 c2")
	w.tried(batch, run("c1 b1 a1 c2"), true)
	require.Equal(t, "b1 b2 a1 a2 a3 c1 c2", names(w.all()))
}

// What goes back in one batch goes back for the same time, so that it is settled in one group.
func TestDelaysComeInSteps(t *testing.T) {
	require.Equal(t, 3*time.Second, inSteps(3*time.Second))
	require.Equal(t, 3100*time.Millisecond, inSteps(3*time.Second+time.Nanosecond))
	require.Equal(t, 3100*time.Millisecond, inSteps(3100*time.Millisecond-time.Microsecond))
}
