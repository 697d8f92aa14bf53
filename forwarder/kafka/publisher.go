package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

// A Publisher publishes to Kafka. It is safe for concurrent use.
type Publisher struct {
	config     Config
	logger     watermill.LoggerAdapter
	partitions *partitions
	reach      *reach

	mu         sync.Mutex
	client     *client // in use, or nil
	closed     bool
	closing    chan struct{}
	publishing sync.WaitGroup

	close func() error
}

var _ message.Publisher = (*Publisher)(nil)

// A retired client is closed by its last user.
type client struct {
	*kgo.Client
	users int // guarded by the Publisher's mu
}

// reach remembers whether the last attempt to connect failed.
type reach struct{ err atomic.Pointer[error] }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (r *reach) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		r.err.Store(nil)
	} else {
		r.err.Store(&err)
	}
}

// NewPublisher returns a publisher that connects when it first publishes. A nil logger logs nothing. It returns an
// *outbox.FieldError that names a bad field.
func NewPublisher(config Config, logger watermill.LoggerAdapter) (*Publisher, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	p := &Publisher{config: config, logger: logger, partitions: newPartitions(), reach: &reach{}, closing: make(chan struct{})}
	opened, err := p.config.open(p.partitions, p.reach, logger)
	if err != nil {
		return nil, err
	}
	p.client = &client{Client: opened}
	p.close = sync.OnceValue(p.shut)
	return p, nil
}

// Publish returns once all in-sync replicas have the messages, or with a *forwarder.BatchError. It does not wait for a
// message whose context ends.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if !p.begin() {
		return outbox.ErrClosed
	}
	defer p.publishing.Done()
	c := newCall(&p.config, topic, messages)
	used, err := p.use()
	if err != nil {
		return err
	}
	bad := p.send(c, used.Client, c.toSend())
	p.release(used, bad)
	p.singleOut(c)
	c.left.Store(true)
	return c.result()
}

func (p *Publisher) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.publishing.Add(1)
	return true
}

func (p *Publisher) use() (*client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client == nil {
		opened, err := p.config.open(p.partitions, p.reach, p.logger)
		if err != nil {
			return nil, err
		}
		p.client = &client{Client: opened}
	}
	p.client.users++
	return p.client, nil
}

// release gives a client back, and retires it if it is no longer usable.
func (p *Publisher) release(used *client, retire bool) {
	p.mu.Lock()
	if retire && p.client == used {
		p.client = nil
	}
	used.users--
	last := p.client != used && used.users == 0
	p.mu.Unlock()
	if last {
		used.Close()
	}
}

// send produces entries in order and waits for their answers. Entries whose partition belongs to another Publish are sent
// once it is free. It reports whether the client is no longer usable.
func (p *Publisher) send(c *call, used *kgo.Client, entries []*entry) (bad bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // franz-go drops what Publish does not wait for
	for deadline := time.Now().Add(p.config.Timeout); len(entries) > 0; {
		freed := p.partitions.begin(c)
		c.begin(entries)
		for _, e := range entries {
			record := *e.record
			record.Context = entryContext{ctx, e}
			used.Produce(ctx, &record, func(_ *kgo.Record, err error) { p.answered(c, e, err) })
		}
		p.wait(c, entries)
		var busy []*entry
		for _, e := range entries {
			switch {
			case errors.Is(e.err, errBusy):
				busy = append(busy, e)
			case base.IsUnavailable(e.err): // it was not sent
			default:
				if ofTopic(e.err) { // to notice when it changes
					used.ForceMetadataRefresh()
				}
				bad = bad || ofClient(e.err)
			}
		}
		if len(busy) > 0 {
			if err := p.awaitTurn(freed, busy, deadline); err != nil {
				for _, e := range busy {
					e.err = err
				}
				break
			}
		}
		entries = busy
	}
	return bad
}

// awaitTurn waits until a partition is free, or returns why it stopped waiting.
func (p *Publisher) awaitTurn(freed <-chan struct{}, busy []*entry, deadline time.Time) error {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-freed:
		return nil
	case <-p.closing:
		return outbox.ErrClosed
	case <-busy[0].msg.Context().Done():
	case <-timer.C:
	}
	return away(errBusy)
}

// answered is called by franz-go when a record has been written or has failed.
func (p *Publisher) answered(c *call, e *entry, err error) {
	if at := e.at.Load(); at == nil {
		if refused := e.refused.Load(); err != nil && refused != nil {
			err = refused.err
		}
	} else {
		p.partitions.answered(c, *at, err)
	}
	c.answer(e, err)
}

// wait ends when all entries are answered, after Timeout or RetryTimeout, with the messages' contexts, or with the
// Publisher.
func (p *Publisher) wait(c *call, entries []*entry) {
	timer := time.NewTimer(p.config.RetryTimeout)
	defer timer.Stop()
	through, waited := false, false
	for watched := 0; ; {
		var ended <-chan struct{}
		if watched < len(entries) {
			ended = entries[watched].msg.Context().Done()
		}
		select {
		case <-c.done:
			return
		case <-c.progress:
			through = true
			timer.Reset(p.config.RetryTimeout)
		case <-ended:
			e := entries[watched]
			c.answer(e, fmt.Errorf("the message's context has ended: %w", context.Cause(e.msg.Context())))
			watched++
		case <-p.closing:
			p.leave(c, entries, outbox.ErrClosed)
		case <-timer.C:
			failure := p.reach.err.Load()
			switch {
			case through || waited:
				p.leave(c, entries, errNoAnswer)
			case failure != nil:
				p.leave(c, entries, fmt.Errorf("%w: %w", errUnreachable, *failure))
			default:
				waited = true
				timer.Reset(p.config.Timeout - p.config.RetryTimeout)
			}
		}
	}
}

// leave answers the entries that Publish no longer waits for.
func (p *Publisher) leave(c *call, entries []*entry, reason error) {
	for _, e := range entries {
		if at := e.at.Load(); at != nil && c.isOpen(e) {
			p.partitions.silent(*at, reason)
		}
		c.answer(e, reason)
	}
}

// singleOut resends, one by one and on a client of its own, messages that a partition rejected because of one of them or of
// another caller's. For each partition it stops at the first message that neither gets through nor is rejected itself.
func (p *Publisher) singleOut(c *call) {
	var doubtful []*entry
	for _, e := range c.entries {
		if e.record == nil {
			continue
		}
		if ofBatch(e.err) {
			doubtful = append(doubtful, e)
		} else {
			e.err = meaning(e.err)
		}
	}
	if len(doubtful) == 0 {
		return
	}
	own, err := p.config.open(p.partitions, p.reach, p.logger)
	if err != nil {
		return
	}
	defer own.Close()
	for i, e := range doubtful {
		p.send(c, own, doubtful[i:i+1])
		if e.err = meaning(e.err); e.err != nil && !outbox.IsPermanent(e.err) {
			for _, rest := range doubtful[i+1:] {
				rest.err = e.err
			}
			return
		}
	}
}

// Close makes running calls of Publish stop waiting, and returns when they have returned. It is idempotent and safe to call
// from many goroutines.
func (p *Publisher) Close() error { return p.close() }

func (p *Publisher) shut() error {
	p.mu.Lock()
	p.closed = true
	close(p.closing)
	p.mu.Unlock()
	p.publishing.Wait()
	if p.client != nil {
		p.client.Close()
	}
	return nil
}
