package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

// What the test under faults expects: a book of all that was called and of all that handlers saw.

// outcomeKnown is what a call's error says of its work.
type outcomeKnown int

const (
	maybeDone outcomeKnown = iota // also while the call goes on
	isDone
	notDone
)

func (k outcomeKnown) String() string { return [...]string{"may be done", "done", "not done"}[k] }

func whatIsKnown(err error) outcomeKnown {
	switch {
	case err == nil:
		return isDone
	case errors.Is(err, outbox.ErrUnknownOutcome):
		return maybeDone
	default:
		return notDone
	}
}

// either is what is known of work that was tried twice, and is done once.
func (k outcomeKnown) either(other outcomeKnown) outcomeKnown {
	switch {
	case k == isDone || other == isDone:
		return isDone
	case k == notDone && other == notDone:
		return notDone
	default:
		return maybeDone
	}
}

// A faultThing is a message, or a row of effects, by its name.
type faultThing struct {
	name, topic string
	id          outbox.MessageID // zero if the outbox gives it
	known       outcomeKnown
	err         error

	queued, inLog, inInbox bool
	effect                 string                   // what its row in the table of effects is called; empty for none
	ids                    map[outbox.MessageID]int // how often each message of this name was handled; more than one message is wrong
}

type faultBook struct {
	mu      sync.Mutex
	things  map[string]*faultThing
	groups  [][]string // names that are done together
	joins   []*faultJoin
	live    map[string][]context.Context // of handlers, by message and reader
	saw     map[string][]string          // what a consumer group saw for the first time, in order
	seenBy  map[string]map[string]int    // how often it saw each
	places  map[int64]string             // positions of the log
	stales  []string                     // topics on which nobody but its operation works, until the faults stop
	unknown int                          // calls that left open what they did

	lost, stuck, twoLive, stale int
	wrong                       []string
}

func newFaultBook() *faultBook {
	return &faultBook{
		things: map[string]*faultThing{}, live: map[string][]context.Context{}, saw: map[string][]string{},
		seenBy: map[string]map[string]int{}, places: map[int64]string{},
	}
}

// expect enters things before the call that makes them, for handlers may be faster than its answer.
func (b *faultBook) expect(things ...*faultThing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var group []string
	for _, thing := range things {
		thing.ids = map[outbox.MessageID]int{}
		b.things[thing.name] = thing
		group = append(group, thing.name)
	}
	b.groups = append(b.groups, group)
}

// answered notes what is known of them after it.
func (b *faultBook) answered(known outcomeKnown, err error, things ...*faultThing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, thing := range things {
		thing.known, thing.err = known, err
	}
	if known == maybeDone {
		b.unknown++
	}
}

// judge finds errors that no fault explains.
func (b *faultBook) judge(what string, err error) {
	var field *outbox.FieldError
	if errors.Is(err, outbox.ErrSchema) || errors.Is(err, base.ErrNilDB) || errors.As(err, &field) {
		b.mistake("%s: %v", what, err)
	}
}

// mistake notes a wrong answer.
func (b *faultBook) mistake(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// staleWrite notes that a holder which had lost its lease has changed something.
func (b *faultBook) staleWrite(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stale++
	b.wrong = append(b.wrong, "stale write: "+fmt.Sprintf(format, args...))
}

// enter notes that a handler begins, and answers with how it ends. No other handler of the same may be alive.
func (b *faultBook) enter(ctx context.Context, key string) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range b.live[key] {
		if other.Err() == nil {
			b.twoLive++
			b.wrong = append(b.wrong, "two live handlers: "+key)
		}
	}
	b.live[key] = append(b.live[key], ctx)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, other := range b.live[key] {
			if other == ctx {
				b.live[key] = append(b.live[key][:i:i], b.live[key][i+1:]...)
				return
			}
		}
	}
}

// handled notes that a handler has a message and returns how often it was handled.
func (b *faultBook) handled(name string, id outbox.MessageID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	thing := b.things[name]
	if thing == nil {
		b.wrong = append(b.wrong, fmt.Sprintf("a message that nobody has sent: %q", name))
		return 1
	}
	thing.ids[id]++
	n := 0
	for _, times := range thing.ids {
		n += times
	}
	return n
}

// read notes that a consumer group has a message and returns how often it was there.
func (b *faultBook) read(group, name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seenBy[group] == nil {
		b.seenBy[group] = map[string]int{}
	}
	b.seenBy[group][name]++
	if b.seenBy[group][name] == 1 {
		b.saw[group] = append(b.saw[group], name)
	}
	return b.seenBy[group][name]
}

// place notes where a message stands in the log.
func (b *faultBook) place(position int64, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, again := b.places[position]; again && known != name {
		b.wrong = append(b.wrong, fmt.Sprintf("position %d is of %q, and then of %q", position, known, name))
	}
	b.places[position] = name
}

func (b *faultBook) staleTopic(topic string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stales = append(b.stales, topic)
}
