package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
	"github.com/incursa/watermill-outbox/stores"
)

var cards = regexp.MustCompile(`\b\d{4} \d{4} \d{4} (\d{4})\b`)

// closed is the shop whose database is not there.
const closed = "harbour"

// A mall is shops with a database each, and the workers for all of them.
type mall struct {
	provider   *stores.Static
	shops      []*shop
	closed     *sql.DB
	subscriber *stores.Subscriber
	router     *message.Router
	logger     watermill.LoggerAdapter
}

func openMall(ctx context.Context, folder string, logger watermill.LoggerAdapter) (m *mall, err error) {
	m = &mall{logger: logger}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	var all []*stores.Store
	for _, name := range []string{"bakery", "bookshop", "florist", "garage"} {
		s, err := openShop(ctx, folder, name, logger)
		if err != nil {
			return m, err
		}
		m.shops, all = append(m.shops, s), append(all, s.store)
	}
	if m.closed, err = outbox.OpenSQLite("sqlite", dsn(folder, "no-such-folder", closed)); err != nil {
		return m, err
	}
	away, err := stores.New(m.closed, stores.Database{ID: closed, Dialect: outbox.SQLite{}}, outbox.Config{}, logger)
	if err != nil {
		return m, err
	}
	if m.provider, err = stores.NewStatic(append(all, away)...); err != nil {
		return m, err
	}
	config := stores.SubscriberConfig{}
	config.Subscriber.MaxAttempts = 3
	config.Subscriber.Backoff = outbox.ExponentialBackoff(time.Second, 5*time.Second)
	if m.subscriber, err = stores.NewSubscriber(m.provider, config, logger); err != nil {
		return m, err
	}
	return m, m.route()
}

func dsn(parts ...string) string {
	file := url.URL{Path: filepath.ToSlash(filepath.Join(parts...)) + ".db"}
	return "file:" + file.EscapedPath() + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)&_txlock=immediate"
}

func (m *mall) status() []stores.StoreStatus { return m.subscriber.Status() }

func (m *mall) route() (err error) {
	if m.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, m.logger); err != nil {
		return err
	}
	m.router.AddMiddleware(middleware.Outcome)
	for topic, handle := range handlers {
		m.router.AddConsumerHandler(topic, topic, m.subscriber, handle)
	}
	_, err = stores.AddWaitHandler(m.router, m.subscriber, join.Config{}, m.logger)
	return err
}

// run keeps the shops busy until ctx ends.
func (m *mall) run(ctx context.Context) error {
	parts := make(chan error, 2+len(m.shops))
	go func() { parts <- m.router.Run(ctx) }()
	go func() {
		parts <- stores.Run(ctx, m.provider, func(ctx context.Context, s *stores.Store) error {
			if s.ID() == closed {
				return nil
			}
			config := s.SubscriberConfig(outbox.SubscriberConfig{})
			sequencer, err := outbox.NewSequencer(s.DB(), outbox.SequencerConfig{Dialect: config.Dialect, Store: config.Store}, m.logger)
			if err != nil {
				return err
			}
			return sequencer.Run(ctx)
		}, m.logger)
	}()
	for _, s := range m.shops {
		go func() { parts <- s.run(ctx) }()
	}
	var err error
	for range cap(parts) {
		if ended := <-parts; !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, ended)
		}
	}
	return errors.Join(err, m.subscriber.Close())
}

func (m *mall) close() (err error) {
	if m.subscriber != nil {
		err = m.subscriber.Close()
	}
	for _, s := range m.shops {
		err = errors.Join(err, s.store.DB().Close())
	}
	if m.closed != nil {
		err = errors.Join(err, m.closed.Close())
	}
	return err
}

// handlers fail as handlers do.
var handlers = map[string]message.NoPublishHandlerFunc{
	"orders.placed": func(msg *message.Message) error {
		if count(msg)%97 == 0 {
			return fmt.Errorf("reserve stock: warehouse answered 503 Service Unavailable")
		}
		return nil
	},
	"payments.captured": func(msg *message.Message) error {
		if count(msg)%41 == 0 {
			return outbox.Permanent(errors.New("book payment: account is closed"))
		}
		return nil
	},
	"mail.confirmation": func(msg *message.Message) error {
		switch n := count(msg); {
		case n%23 == 0:
			return outbox.Permanent(errors.New("smtp: 550 5.1.1 no such mailbox"))
		case n%31 == 0:
			return outbox.Permanent(errors.New("render template \"confirmation\": name is missing\ntemplate: confirmation:4:12\ngoroutine 71 [running]"))
		}
		return nil
	},
	"parcels.tracked": func(msg *message.Message) error {
		if count(msg)%113 == 0 {
			return outbox.Permanent(errors.New("carrier: unknown depot \"XQ7\""))
		}
		return nil
	},
	"import.part": func(msg *message.Message) error {
		if string(msg.Payload) == `{"part":4}` {
			return outbox.Permanent(errors.New("parse line 218: wrong number of fields"))
		}
		return nil
	},
	"import.done": func(*message.Message) error { return nil },
}

func count(msg *message.Message) (n int) {
	if _, err := fmt.Sscan(msg.Metadata.Get("n"), &n); err != nil {
		return 1
	}
	return n
}

// received are what the shop's payment provider has sent.
func received(ctx context.Context, in *inbox.Inbox) error {
	for i := range 24 {
		_, err := in.Enqueue(ctx, nil, inbox.Received{
			Key:     inbox.Key{Source: "payments", MessageID: fmt.Sprintf("evt_%04d", i), Handler: "book-payment"},
			Message: outbox.Message{UUID: fmt.Sprintf("evt_%04d", i), Payload: []byte(`{"amount":1200}`)},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
