package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A partition that accepts nothing is left alone for pauseFor. With a forwarder, all messages but its retries leave it alone
// for awayFor, so that the first message of each stream does not have to wait for it too.
const (
	pauseFor = 100 * time.Millisecond
	awayFor  = 30 * time.Second
)

type place struct {
	topic     string
	partition int32
}

// partitions knows which partitions are away, and gives each to one Publish at a time. franz-go fails the records of a
// partition together, and records that a second Publish added meanwhile would overtake those that the first must repeat.
type partitions struct {
	mu      sync.Mutex
	retries bool // there have been messages that a forwarder tries again
	states  map[place]*partitionState
	freed   chan struct{} // closed when one is free again
}

type partitionState struct {
	err   error // why it took nothing the last time
	since time.Time
	owner *call // whose records are under way
	out   int   // how many
}

func newPartitions() *partitions {
	return &partitions{states: map[place]*partitionState{}, freed: make(chan struct{})}
}

// take counts a record in, or returns why the partition takes none of this call now.
func (p *partitions) take(c *call, at place, retry bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retries = p.retries || retry
	if err := c.shut[at]; err != nil { // else it would overtake
		return err
	}
	err := p.closed(c, at, retry)
	if err != nil {
		c.shut[at] = err
		return err
	}
	s := p.states[at]
	if s == nil {
		s = &partitionState{}
		p.states[at] = s
	}
	s.owner = c
	s.out++
	return nil
}

// closed is called with the lock held.
func (p *partitions) closed(c *call, at place, retry bool) error {
	s := p.states[at]
	switch {
	case s == nil:
		return nil
	case s.err != nil && (time.Since(s.since) < pauseFor || time.Since(s.since) < awayFor && !retry && p.retries):
		return away(fmt.Errorf("partition %d of %q is away: %w", at.partition, at.topic, s.err))
	case s.owner == nil || s.owner == c:
		return nil
	case s.owner.left.Load():
		return away(fmt.Errorf("partition %d of %q has not answered yet for %d messages", at.partition, at.topic, s.out))
	default:
		return errBusy
	}
}

// answered counts a record out. An error is the reason why the partition accepts nothing.
func (p *partitions) answered(c *call, at place, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.states[at]
	switch {
	case err == nil:
		s.err = nil
	case ofBatch(err): // it is one message's fault
		c.shut[at] = err
	case c.left.Load() && s.err != nil: // it only says that Publish did not wait
		s.since = time.Now()
	default:
		c.shut[at] = away(err)
		s.err, s.since = err, time.Now()
	}
	if s.out--; s.out > 0 {
		return
	}
	s.owner = nil
	close(p.freed)
	p.freed = make(chan struct{})
	if s.err == nil {
		delete(p.states, at)
	}
}

// begin opens a round of a call. It returns a channel that is closed when a partition is free again.
func (p *partitions) begin(c *call) (freed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.shut = map[place]error{}
	return p.freed
}

// silent records that a partition did not answer in time.
func (p *partitions) silent(at place, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.states[at]; s != nil {
		s.err, s.since = err, time.Now()
	}
}

// ForTopic implements kgo.Partitioner.
func (p *partitions) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{partitions: p, topic: topic, byKey: kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

// topicPartitioner uses Kafka's own choice for records with a key. Others go to the partitions in turn, skipping those that
// are away. It is used by one goroutine at a time.
type topicPartitioner struct {
	*partitions
	topic string
	byKey kgo.TopicPartitioner
	turn  int
}

// RequiresConsistency includes partitions without a leader in the choice.
func (t *topicPartitioner) RequiresConsistency(*kgo.Record) bool { return true }

// none is a choice that fails the record.
const none = -1

// Partition records in the entry why there is no choice.
func (t *topicPartitioner) Partition(r *kgo.Record, n int) int {
	e, ours := r.Context.Value(entryKey{}).(*entry)
	if !ours {
		return none
	}
	if r.Key != nil {
		return t.take(e, t.byKey.Partition(r, n))
	}
	for range n {
		t.turn = (t.turn + 1) % n
		if choice := t.take(e, t.turn); choice != none {
			return choice
		}
	}
	return none
}

func (t *topicPartitioner) take(e *entry, choice int) int {
	at := place{t.topic, int32(choice)} //nolint:gosec // a partition's number
	if err := t.partitions.take(e.call, at, e.retry); err != nil {
		e.refused.Store(&refusal{err})
		return none
	}
	e.at.Store(&at)
	return choice
}

type entryKey struct{}

// entryContext takes an entry to the partitioner.
type entryContext struct {
	context.Context //nolint:containedctx // it is a context
	entry           *entry
}

// Value implements context.Context.
func (c entryContext) Value(key any) any {
	if key == (entryKey{}) {
		return c.entry
	}
	return c.Context.Value(key)
}
