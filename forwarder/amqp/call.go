package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/flow"
)

// A call is one Publish: messages to one exchange with one routing key, and the result of each.
type call struct {
	exchange, key string
	publishings   []amqp091.Publishing

	started  atomic.Bool   // its turn has come
	progress chan struct{} // gets a token when a message was sent or answered
	done     chan struct{} // closed when all are answered

	mu       sync.Mutex
	errs     []error
	answered []bool
	left     int
}

func newCall(exchange, key string, publishings []amqp091.Publishing) *call {
	return &call{
		exchange: exchange, key: key, publishings: publishings,
		progress: flow.NewNote(), done: make(chan struct{}),
		errs: make([]error, len(publishings)), answered: make([]bool, len(publishings)), left: len(publishings),
	}
}

// answer records the result of a message. The first answer counts.
func (c *call) answer(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered[i] {
		return
	}
	c.answered[i], c.errs[i] = true, err
	if c.left--; c.left == 0 {
		close(c.done)
	}
	c.moved()
}

// moved signals progress.
func (c *call) moved() {
	flow.Notify(c.progress)
}

// rest answers all messages without an answer.
func (c *call) rest(err error) {
	for i := range c.publishings {
		c.answer(i, err)
	}
}

// end answers the messages whose contexts have ended.
func (c *call) end(contexts []context.Context) {
	for i, ctx := range contexts {
		if ctx.Err() != nil {
			c.answer(i, errEnded(ctx))
		}
	}
}

// endings answers messages as their contexts end. It watches one context after the other.
type endings struct {
	call *call
	left []context.Context
}

// next is closed when the context that is watched has ended; it is nil once none is left.
func (e *endings) next() <-chan struct{} {
	if len(e.left) == 0 {
		return nil
	}
	return e.left[0].Done()
}

// answer answers the message whose context has ended.
func (e *endings) answer() {
	e.call.answer(len(e.call.publishings)-len(e.left), errEnded(e.left[0]))
	e.left = e.left[1:]
}

func errEnded(ctx context.Context) error {
	return fmt.Errorf("amqp: the message's context has ended: %w", context.Cause(ctx))
}

func (c *call) isAnswered(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered[i]
}

// collateral returns the messages that were lost with a closed channel, and why it was closed.
func (c *call) collateral() (cause *amqp091.Error, indexes []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, err := range c.errs {
		var e *collateralError
		if errors.As(err, &e) {
			cause, indexes = e.cause, append(indexes, i)
		}
	}
	return cause, indexes
}

// correct replaces an answer.
func (c *call) correct(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs[i] = err
}

// drop counts messages that no queue has taken as published.
func (c *call) drop() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, err := range c.errs {
		if errors.Is(err, ErrUnroutable) {
			c.errs[i] = nil
			n++
		}
	}
	return n
}

// result is nil if all are published.
func (c *call) result() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.errs {
		if err != nil {
			return &forwarder.BatchError{Errs: append([]error(nil), c.errs...)}
		}
	}
	return nil
}
