package broker

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// reconnect is how long a patient subscriber waits between attempts.
const reconnect = time.Second

// A patient subscriber waits for its broker: a service that is started while the broker is away does the rest of its work.
type patient struct {
	connect func() (message.Subscriber, error)
	logger  watermill.LoggerAdapter

	close   sync.Once
	closing chan struct{}
	running sync.WaitGroup
}

func newPatient(connect func() (message.Subscriber, error), logger watermill.LoggerAdapter) *patient {
	return &patient{connect: connect, logger: logger, closing: make(chan struct{})}
}

// Subscribe implements message.Subscriber. It never fails.
func (p *patient) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	p.running.Go(func() {
		defer close(out)
		for {
			err := p.subscribe(ctx, topic, out)
			if err == nil {
				return
			}
			p.logger.Error("Waiting for the broker", err, watermill.LogFields{"topic": topic})
			select {
			case <-time.After(reconnect):
			case <-p.closing:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return out, nil
}

// subscribe passes messages on until the end; an error means that it has not begun.
func (p *patient) subscribe(ctx context.Context, topic string, out chan<- *message.Message) error {
	subscriber, err := p.connect()
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		_ = subscriber.Close() // the first error says more
		return err
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		select {
		case <-p.closing:
		case <-ctx.Done():
		}
		if err := subscriber.Close(); err != nil {
			p.logger.Error("Closing the subscriber", err, nil)
		}
	}()
	for msg := range messages {
		select {
		case out <- msg:
		case <-p.closing:
			msg.Nack()
		case <-ctx.Done():
			msg.Nack()
		}
	}
	<-closed
	return nil
}

// Close implements message.Subscriber.
func (p *patient) Close() error {
	p.close.Do(func() { close(p.closing) })
	p.running.Wait()
	return nil
}
