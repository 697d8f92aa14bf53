package kafka

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
)

// A connection has a producer with an id of its own. One in which something failed is retired and followed by another.
type connection struct {
	client   sarama.Client
	producer *producer
	users    int // calls of Publish; guarded by the Publisher's mu
}

func (p *Publisher) open() (*connection, error) {
	client, err := sarama.NewClient(p.config.Brokers, p.config.Sarama)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	producer, err := newProducer(client, p.config.Sarama, p.wait)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("get a producer id from Kafka: %w", err), client.Close())
	}
	return &connection{client: client, producer: producer}, nil
}

func (c *connection) close() error { return c.client.Close() }

// connect returns the connection in use, or one of the caller's own, and what to call with it at the end.
func (p *Publisher) connect(own bool) (*connection, func(conn *connection, retire bool), error) {
	if own {
		conn, err := p.open()
		return conn, func(conn *connection, _ bool) { p.drop(conn) }, err
	}
	conn, err := p.acquire()
	return conn, p.release, err
}

// acquire returns the connection in use. If there is none, one of all callers opens it.
func (p *Publisher) acquire() (*connection, error) {
	for {
		if conn := p.use(); conn != nil {
			return conn, nil
		}
		_, err, _ := p.opening.Do("", func() (any, error) {
			if p.connected() {
				return nil, nil
			}
			conn, err := p.open()
			if err != nil {
				return nil, err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.conn = conn
			return nil, nil
		})
		if err != nil {
			return nil, err
		}
	}
}

func (p *Publisher) connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil
}

func (p *Publisher) use() *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.users++
	}
	return p.conn
}

// release gives a connection back. The last one to leave a retired connection closes it.
func (p *Publisher) release(conn *connection, retire bool) {
	p.mu.Lock()
	if retire && p.conn == conn {
		p.conn = nil
	}
	conn.users--
	last := p.conn != conn && conn.users == 0
	p.mu.Unlock()
	if last {
		p.drop(conn)
	}
}

func (p *Publisher) drop(conn *connection) {
	if err := conn.close(); err != nil {
		p.logger.Debug("A connection to Kafka did not close well", watermill.LogFields{"err": err})
	}
}
