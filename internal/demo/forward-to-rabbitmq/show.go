package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	configs "github.com/incursa/watermill-outbox/forwarder/amqp/wmamqp"
)

// The topic is also the name of the queue.
const topic = "forward-to-rabbitmq.orders"

// patience is how long nothing may arrive.
const patience = time.Minute

// show places the orders, a half of them before the broker is stopped and a half while it is away.
func show(ctx context.Context, b broker, orders int, out io.Writer) (err error) {
	out = &lines{out: out}
	db, end, err := openDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()

	shop, err := newShop(db)
	if err != nil {
		return err
	}
	till := newTill(orders)
	consumer, err := till.consume(ctx, b.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	stop, err := startForwarder(ctx, db, b.url, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	started := time.Now()
	half := orders / 2
	if err := shop.place(ctx, 0, half); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d orders are placed\n", half)
	if b.node != nil {
		if err := till.until(ctx, max(1, half/2)); err != nil {
			return err
		}
		fmt.Fprintln(out, "the broker is stopped")
		if err := b.node.Stop(); err != nil {
			return err
		}
	}
	if err := shop.place(ctx, half, orders); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d more orders are placed; %d of all have arrived\n", orders-half, till.distinct())
	if b.node != nil {
		if err := b.node.Start(ctx); err != nil {
			return err
		}
		fmt.Fprintln(out, "the broker is started again")
	}
	if err := till.until(ctx, orders); err != nil {
		return err
	}
	attempts, err := settled(ctx, db)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "placed %d, arrived %d, lost %d, arrived again %d, attempts spent on outages %d; %.1f s\n",
		orders, till.distinct(), orders-till.distinct(), till.again(), attempts, time.Since(started).Seconds())
	return nil
}

func openDatabase(ctx context.Context) (db *sql.DB, end func() error, err error) {
	folder, err := os.MkdirTemp("", "forward-")
	if err != nil {
		return nil, nil, err
	}
	file := url.URL{Path: filepath.ToSlash(filepath.Join(folder, "shop.db"))}
	db, err = outbox.OpenSQLite("sqlite", "file:"+file.EscapedPath()+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	end = func() error { return errors.Join(db.Close(), os.RemoveAll(folder)) }
	err = outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}})
	if err == nil {
		_, err = db.ExecContext(ctx, createSQL)
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return db, end, nil
}

// A shop is the application. It knows nothing of RabbitMQ.
type shop struct {
	db        *sql.DB
	publisher *outbox.Publisher
}

func newShop(db *sql.DB) (*shop, error) {
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}, RequireTx: true}, nil)
	return &shop{db, publisher}, err
}

// place writes each order and its message in one transaction.
func (s *shop) place(ctx context.Context, from, to int) error {
	for number := from; number < to; number++ {
		err := outbox.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, orderAddSQL, number); err != nil {
				return err
			}
			return s.publisher.Publish(topic, message.NewMessageWithContext(ctx, watermill.NewUUID(), fmt.Appendf(nil, "order %d", number)))
		})
		if err != nil {
			return fmt.Errorf("place order %d: %w", number, err)
		}
	}
	return nil
}

// startForwarder runs the forwarder beside the application; it may as well be a process of its own, or several.
func startForwarder(ctx context.Context, db *sql.DB, brokerURL string, out io.Writer) (stop func() error, err error) {
	publisher, err := amqp.NewPublisher(amqp.Config{URL: brokerURL, DeclareQueues: []string{topic}}, nil)
	if err != nil {
		return nil, err
	}
	f, err := forwarder.New(db, publisher, forwarder.Config{
		Topics:     []string{topic},
		RetryMax:   500 * time.Millisecond, // not to wait long in a show
		Subscriber: outbox.SubscriberConfig{Dialect: outbox.SQLite{}},
		OnState:    func(s forwarder.State) { fmt.Fprintln(out, "the forwarder's breaker is", s) },
	}, nil)
	if err != nil {
		return nil, errors.Join(err, publisher.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	return func() error { return errors.Join(f.Close(), <-ended, publisher.Close()) }, nil
}

// settled waits until the outbox knows that all have been forwarded, and answers the most attempts that any has spent.
func settled(ctx context.Context, db *sql.DB) (attempts int, err error) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		var left int
		err := db.QueryRowContext(ctx, outboxLeftSQL).Scan(&left, &attempts)
		if err != nil || left == 0 {
			return attempts, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// A till counts the orders that arrive, by their UUID: one that arrives twice is one.
type till struct {
	mu      sync.Mutex
	arrived map[string]int
	news    chan struct{} // gets a token when one has arrived
}

func newTill(orders int) *till {
	return &till{arrived: make(map[string]int, orders), news: make(chan struct{}, 1)}
}

// consume is an ordinary consumer of watermill-amqp.
func (t *till) consume(ctx context.Context, brokerURL string) (*wmamqp.Subscriber, error) {
	config := configs.Config(brokerURL)
	reconnect := wmamqp.DefaultReconnectConfig()
	reconnect.BackoffMaxInterval = time.Second
	config.Connection.Reconnect = reconnect
	subscriber, err := wmamqp.NewSubscriber(config, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, errors.Join(err, subscriber.Close())
	}
	go func() {
		for msg := range messages {
			t.mu.Lock()
			t.arrived[msg.UUID]++
			t.mu.Unlock()
			msg.Ack()
			select {
			case t.news <- struct{}{}:
			default:
			}
		}
	}()
	return subscriber, nil
}

func (t *till) distinct() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.arrived)
}

func (t *till) again() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, times := range t.arrived {
		n += times - 1
	}
	return n
}

// until waits until so many have arrived.
func (t *till) until(ctx context.Context, n int) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for t.distinct() < n {
		select {
		case <-t.news:
			timer.Reset(patience)
		case <-timer.C:
			return fmt.Errorf("nothing has arrived for %v; %d orders have", patience, t.distinct())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lines keeps lines of several goroutines apart.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(line)
}
