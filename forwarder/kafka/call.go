package kafka

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/flow"
)

// A call is one Publish.
type call struct {
	entries []*entry
	left    atomic.Bool     // Publish does not wait any longer
	shut    map[place]error // partitions that refused a record in this round; guarded by partitions

	mu       sync.Mutex
	open     int           // entries that were sent and have no answer
	done     chan struct{} // closed when there are none
	progress chan struct{} // gets a token when something got through
}

// An entry is a message of a call, with its result.
type entry struct {
	call   *call
	msg    *message.Message
	record *kgo.Record // nil if there is none to send
	retry  bool

	at      atomic.Pointer[place]   // once it has a partition
	refused atomic.Pointer[refusal] // why it has none

	// Guarded by the call.
	sent     bool
	answered bool
	err      error
}

type refusal struct{ err error }

// newCall marshals the messages, and answers those that no broker could accept.
func newCall(config *Config, topic string, messages []*message.Message) *call {
	c := &call{entries: make([]*entry, len(messages)), progress: flow.NewNote()}
	for i, msg := range messages {
		e := &entry{call: c, msg: msg, retry: forwarder.IsRetry(msg.Context())}
		c.entries[i] = e
		record, err := config.Marshaler.Marshal(topic, msg)
		if err == nil {
			record.Topic = topic
			if size := sizeOf(record); size > config.MaxMessageBytes {
				err = fmt.Errorf("the message is too large: with its headers it has about %d bytes, and Config.MaxMessageBytes is %d", size, config.MaxMessageBytes)
			}
		}
		if err != nil {
			e.err = outbox.Permanent(fmt.Errorf("publish to Kafka: %w", err))
			continue
		}
		e.record = record
	}
	return c
}

// sizeOf is roughly the size of a record in its own batch.
func sizeOf(r *kgo.Record) int {
	const batch, record, header = 61, 21, 10 // around them, at most
	size := batch + record + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += header + len(h.Key) + len(h.Value)
	}
	return size
}

// toSend begins a round: all entries that can be sent.
func (c *call) toSend() (entries []*entry) {
	for _, e := range c.entries {
		if e.record != nil {
			entries = append(entries, e)
		}
	}
	return entries
}

func (c *call) begin(entries []*entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.done = len(entries), make(chan struct{})
	for _, e := range entries {
		e.sent, e.answered, e.err = true, false, nil
		e.at.Store(nil)
		e.refused.Store(nil)
	}
	if c.open == 0 {
		close(c.done)
	}
}

// answer records the result of an entry. The first answer counts.
func (c *call) answer(e *entry, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !e.sent || e.answered {
		return
	}
	e.answered, e.err = true, err
	if c.open--; c.open == 0 {
		close(c.done)
	}
	if err == nil {
		flow.Notify(c.progress)
	}
}

// isOpen reports whether an entry was sent and has no answer.
func (c *call) isOpen(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.sent && !e.answered
}

// result is nil if all are published.
func (c *call) result() error {
	errs, failed := make([]error, len(c.entries)), false
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range c.entries {
		errs[i] = e.err
		failed = failed || e.err != nil
	}
	if failed {
		return &forwarder.BatchError{Errs: errs}
	}
	return nil
}
