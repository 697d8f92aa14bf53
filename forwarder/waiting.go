package forwarder

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/quiet"
)

// A lane keeps its order: the messages of one stream to one destination. Messages without a stream key form one lane.
type lane struct{ destination, key string }

// waiting holds, in order, a worker's messages that could not be published, and those that would overtake them.
type waiting struct {
	max    int
	topic  string
	logger watermill.LoggerAdapter
	added  chan struct{} // gets a token when a message is added
	room   chan struct{} // gets a token when a message leaves

	mu       sync.Mutex
	items    []*item
	bytes    int64
	lanes    map[lane]int               // how many messages block each lane
	stopped  map[string]stop            // by stream key
	nowhere  map[string]int             // destinations: how many messages block everything that goes there
	begun    map[string]time.Time       // destinations: since when messages wait
	troubles map[string]*quiet.Troubles // by destination for which messages have waited
}

// A stop marks the first message of a claim and stream that went back. The messages after it go back too.
type stop struct {
	claim outbox.OwnerToken
	seq   outbox.WorkItemID
}

// maxWaitingBytes limits the bytes that may wait, whatever the number of messages.
const maxWaitingBytes = 32 << 20

// What a waiting message blocks.
type blocking int

const (
	nothing     blocking = iota
	itsLane              // it is not the message's fault; the rest of its stream waits
	destination          // nothing gets through there
)

func newWaiting(size int, topic string, logger watermill.LoggerAdapter) *waiting {
	return &waiting{
		max: size, topic: topic, logger: logger, added: flow.NewNote(), room: flow.NewNote(),
		lanes: map[lane]int{}, stopped: map[string]stop{}, nowhere: map[string]int{}, begun: map[string]time.Time{}, troubles: map[string]*quiet.Troubles{},
	}
}

func (w *waiting) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.items)
}

// blocks reports whether a message must not be published now, because it waits behind another or goes back.
func (w *waiting) blocks(it *item) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lanes[it.lane] > 0 || w.nowhere[it.lane.destination] > 0 || w.stops(it)
}

// stop records that a message goes back, so that the rest of its claim in the same stream follows and does not overtake it. It returns
// false if the message itself goes back only because of an earlier one.
func (w *waiting) stop(it *item) (first bool) {
	if it.lane.key == "" {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stops(it) {
		return false
	}
	w.stopped[it.lane.key] = stop{it.claim, it.seq}
	return true
}

// isStopped reports whether a message must go back because an earlier one of its stream and claim did.
func (w *waiting) isStopped(it *item) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stops(it)
}

// stops is isStopped; the caller holds the lock.
func (w *waiting) stops(it *item) bool {
	at, known := w.stopped[it.lane.key]
	return known && at.claim == it.claim && at.seq < it.seq
}

// forget drops the stops of claims older than the oldest one that may still bring messages, except for streams that wait here.
func (w *waiting) forget(oldest outbox.OwnerToken) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.stopped) == 0 {
		return
	}
	here := map[string]bool{}
	for _, it := range w.items {
		here[it.lane.key] = true
	}
	maps.DeleteFunc(w.stopped, func(key string, at stop) bool { return at.claim != oldest && !here[key] })
}

// since is when the first of those that wait for a destination was tried; if none waits, a message that was tried at a time
// would be the first.
func (w *waiting) since(destination string, tried time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if begun, known := w.begun[destination]; known {
		return begun
	}
	return tried
}

// add takes a message that was tried at the given time, unless there is no room or the message must go back.
func (w *waiting) add(it *item, what blocking, tried time.Time) (added, stopped bool) {
	w.mu.Lock()
	if w.stops(it) {
		w.mu.Unlock()
		return false, true
	}
	if len(w.items) >= w.max || w.bytes >= maxWaitingBytes {
		w.mu.Unlock()
		return false, false
	}
	w.items = append(w.items, it)
	w.bytes += it.size
	w.block(it, what)
	if _, known := w.begun[it.lane.destination]; !known {
		w.begun[it.lane.destination] = tried
	}
	trouble, cause := w.trouble(it.lane.destination), it.err
	w.mu.Unlock()
	if cause != nil {
		trouble.Error(msgHeld, cause, nil)
	}
	flow.Notify(w.added)
	return true, false
}

const msgHeld = "Messages are held because their destination does not take them now; no attempt is spent, and other streams go on"

// trouble returns the troubles of one destination. The caller holds the lock.
func (w *waiting) trouble(destination string) *quiet.Troubles {
	if w.troubles[destination] == nil {
		w.troubles[destination] = quiet.New(w.logger.With(watermill.LogFields{"topic": w.topic, "destination": destination}))
	}
	return w.troubles[destination]
}

func blockedBy(it *item, through bool) blocking {
	switch {
	case it.lane.key != "":
		return itsLane
	case through:
		return nothing
	case base.IsUnavailable(it.err):
		return itsLane
	default:
		return destination
	}
}

// block changes what a message blocks. The caller holds the lock.
func (w *waiting) block(it *item, what blocking) {
	switch it.blocks {
	case itsLane:
		decrease(w.lanes, it.lane)
	case destination:
		decrease(w.nowhere, it.lane.destination)
	case nothing:
	}
	it.blocks = what
	switch what {
	case itsLane:
		w.lanes[it.lane]++
	case destination:
		w.nowhere[it.lane.destination]++
	case nothing:
	}
}

func decrease[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

func (w *waiting) isEmpty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.items) == 0
}

// all returns the waiting messages, in order.
func (w *waiting) all() []*item {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.items)
}

// tried removes the answered messages of a run, and moves doubtful ones behind the others. It is called for one destination
// at a time.
func (w *waiting) tried(run, failed []*item, through bool) {
	w.mu.Lock()
	again := map[*item]bool{}
	for _, it := range failed {
		again[it] = true
	}
	gone := map[*item]bool{}
	for _, it := range run {
		if gone[it] = !again[it]; gone[it] {
			w.bytes -= it.size
			w.block(it, nothing)
			continue
		}
		w.block(it, blockedBy(it, through))
	}
	w.items = slices.DeleteFunc(w.items, func(it *item) bool { return gone[it] })
	w.items = moveBehind(w.items, slices.DeleteFunc(slices.Clone(failed), func(it *item) bool { return base.IsUnavailable(it.err) }))
	to := run[0].lane.destination
	if through { // what is left may not be the destination's fault
		for _, it := range w.items {
			if it.lane.destination == to && it.blocks != nothing {
				w.block(it, blockedBy(it, through))
			}
		}
	}
	var over *quiet.Troubles
	if !slices.ContainsFunc(w.items, func(it *item) bool { return it.lane.destination == to }) {
		delete(w.begun, to)
		over = w.trouble(to)
	}
	w.mu.Unlock()
	if over != nil {
		over.Over(msgHeld)
	}
	flow.Notify(w.room)
}

// moveBehind moves doubtful messages behind the others, in the given order. A stream moves as a whole and keeps its order.
func moveBehind(items, doubtful []*item) []*item {
	unit := func(it *item) any {
		if it.lane.key == "" {
			return it
		}
		return it.lane
	}
	places := map[any]int{} // others have 0
	for i, it := range doubtful {
		if places[unit(it)] == 0 {
			places[unit(it)] = i + 1
		}
	}
	moved := slices.Clone(items)
	slices.SortStableFunc(moved, func(a, b *item) int { return places[unit(a)] - places[unit(b)] })
	return moved
}

func (w *waiting) takeAll() []*item {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.items
	w.items, w.bytes = nil, 0
	return all
}
