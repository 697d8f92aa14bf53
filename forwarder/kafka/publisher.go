package kafka

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/singleflight"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
)

// The pauses between the rounds of one Publish.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// A Publisher publishes to Kafka. It may be used by many goroutines.
type Publisher struct {
	config  Config
	logger  watermill.LoggerAdapter
	opening singleflight.Group
	through atomic.Int64 // messages

	mu         sync.Mutex
	conn       *connection // nil until it is needed, and after a failure
	closed     bool
	closing    chan struct{}
	publishing sync.WaitGroup

	close func() error
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher connects to nothing yet. A nil logger logs nothing.
func NewPublisher(config Config, logger watermill.LoggerAdapter) (*Publisher, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	p := &Publisher{config: config, logger: logger, closing: make(chan struct{})}
	p.close = sync.OnceValue(p.shut)
	return p, nil
}

// Publish returns when all replicas in sync have the messages, or a *forwarder.BatchError.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if !p.begin() {
		return outbox.ErrClosed
	}
	defer p.publishing.Done()
	b := newBatch(topic, messages)
	p.deliver(b)
	for _, err := range b.errs {
		if err != nil {
			return &forwarder.BatchError{Errs: b.errs}
		}
	}
	return nil
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

// deliver sends a batch, and what failed of it again, as long as there is hope.
func (p *Publisher) deliver(b *batch) {
	begun, before := time.Now(), p.through.Load()
	for pause := minPause; len(b.pending) > 0; {
		again := p.round(b)
		if again == now {
			continue
		}
		if len(b.pending) == 0 || again == never || p.through.Load() == before || time.Since(begun) > p.config.RetryTimeout {
			return
		}
		p.logger.Debug("Some messages are sent again", watermill.LogFields{"topic": b.topic, "messages": len(b.pending), "err": b.errs[b.pending[0]]})
		if !p.wait(pause) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// again is when to send again what failed.
type again int

const (
	later again = iota // it may get better soon
	now                // one by one, to tell which are at fault
	never              // it is for the caller to wait
)

func (p *Publisher) round(b *batch) again {
	conn, release, err := p.connect(b.single)
	if err != nil {
		b.failAll(err)
		return never
	}
	retire := false
	defer func() { release(conn, retire) }()
	// Asked for once, and not by sarama for each message. The answer is remembered.
	if _, err := conn.client.Partitions(b.topic); err != nil {
		retire = !ofTopic(err)
		b.failAll(err)
		return never
	}
	through, broken, doubtful := b.send(conn.producer)
	p.through.Add(int64(through))
	retire = broken
	if doubtful {
		return now
	}
	return later
}

// wait answers false if the publisher is closed meanwhile.
func (p *Publisher) wait(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.closing:
		return false
	}
}

// Close waits for the calls of Publish that have begun; they try no further. It is idempotent and safe to call from many
// goroutines.
func (p *Publisher) Close() error { return p.close() }

func (p *Publisher) shut() error {
	p.mu.Lock()
	p.closed = true
	close(p.closing)
	p.mu.Unlock()
	p.publishing.Wait()
	if p.conn == nil {
		return nil
	}
	return p.conn.close()
}
