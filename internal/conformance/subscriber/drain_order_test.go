package subscriber_test

import (
	"context"
	"database/sql"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/middleware"
)

// working is a router whose handler has a message and waits for finish before it publishes.
type working struct {
	*fixture
	router     *message.Router
	subscriber *outbox.Subscriber
	publisher  *outbox.Publisher
	book       *suite.LogBook
	id         outbox.MessageID
	finish     chan struct{}
	ended      chan error
	stop       context.CancelFunc // ends the context of Run
}

func (f *fixture) working(db *sql.DB) *working {
	f.T.Helper()
	w := &working{fixture: f, book: suite.NewLogBook(), finish: make(chan struct{}), ended: make(chan error, 1), publisher: f.Publisher(db)}
	w.subscriber = f.SubscriberOn(db, nil, func(c *outbox.SubscriberConfig) { c.DrainTimeout = time.Hour })
	var err error
	w.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: time.Hour}, w.book)
	f.NoError(err)
	w.router.AddMiddleware(middleware.Outcome)
	begun := make(chan struct{}, 100)
	w.router.AddConsumerHandler("handler", "orders", w.subscriber, func(msg *message.Message) error {
		begun <- struct{}{}
		<-w.finish
		if err := msg.Context().Err(); err != nil {
			return err
		}
		return w.publisher.Publish("bills", message.NewMessage("bill", nil))
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	w.stop = stop
	go func() { w.ended <- w.router.Run(ctx) }()
	<-w.router.Running()
	w.id = f.Enqueue(outbox.Message{Topic: "orders"})[0]
	<-begun
	return w
}

// finishes lets the handler go on once the subscriber closes, and asserts that its work is done.
func (w *working) finishes(end func() error) {
	w.T.Helper()
	result := make(chan error, 1)
	go func() { result <- end() }()
	for {
		if _, err := w.subscriber.Subscribe(w.Context(), "more"); err != nil {
			w.ErrorIs(err, outbox.ErrClosed)
			break
		}
	}
	close(w.finish)
	w.NoError(<-result)
	w.NoError(<-w.ended)
	w.stop()
	r := w.Row(w.id)
	w.Equal(int(outbox.Done), r.Status)
	w.Zero(r.Retries)
	w.Len(w.Rows("{topic} = 'bills'"), 1)
}

// What handlers use is closed after them: publishers once the router and the subscribers have stopped, and then the database.
func TestTrap_DrainClosesWhatHandlersUseAfterThem(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := f.DB.Reopen(t).DB
		w := f.working(pool)
		closed := make(chan string, 10)
		tell := func(name string, c io.Closer) io.Closer {
			if p, ok := c.(message.Publisher); ok {
				return tellingPublisher{p, func() { closed <- name }}
			}
			return telling{c, func() { closed <- name }}
		}
		w.finishes(func() error {
			return outbox.Drain(t.Context(), w.router, pool, w.publisher, tell("publisher", w.publisher), tell("other", io.NopCloser(nil)), w.subscriber)
		})
		f.Equal("other", <-closed, "it is with the subscribers")
		f.Equal("publisher", <-closed)
		f.ErrorIs(w.publisher.Publish("bills", message.NewMessage("bill", nil)), outbox.ErrClosed)
		f.Error(pool.PingContext(t.Context()))
	})
}

type telling struct {
	io.Closer
	tell func()
}

func (t telling) Close() error {
	t.tell()
	return t.Closer.Close()
}

type tellingPublisher struct {
	message.Publisher
	tell func()
}

func (t tellingPublisher) Close() error {
	t.tell()
	return t.Publisher.Close()
}

// What is not reached in time stays open, and is named.
func TestTrap_DrainThatEndsBeforeTheDatabaseIsClosed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := f.DB.Reopen(t).DB
		w := f.working(pool)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := outbox.Drain(ctx, w.router, pool, w.publisher)
		f.ErrorIs(err, context.Canceled)
		for _, name := range []string{"closer 1, a *sql.DB", "closer 2, a *outbox.Publisher", "the router"} {
			f.ErrorContains(err, name)
		}
		close(w.finish)
		f.NoError(<-w.ended)
		w.stop()
		f.NoError(pool.PingContext(t.Context()))
		f.NoError(outbox.Drain(t.Context(), w.router, w.subscriber))
	})
}

// Watermill logs an error with "All handlers stopped" if the subscriber is closed before the router.
func TestTrap_DrainClosesTheRouterBeforeItsSubscribers(t *testing.T) {
	for range 200 {
		book := suite.NewLogBook()
		router, err := message.NewRouter(message.RouterConfig{}, book)
		require.NoError(t, err)
		source := &endless{out: make(chan *message.Message)}
		router.AddConsumerHandler("handler", "orders", source, func(*message.Message) error { return nil })
		ended := make(chan error, 1)
		go func() { ended <- router.Run(context.WithoutCancel(t.Context())) }()
		<-router.Running()
		closers := make([]io.Closer, 20)
		for i := range closers {
			closers[i] = source
		}
		require.NoError(t, outbox.Drain(t.Context(), router, closers...))
		require.NoError(t, <-ended)
		require.Empty(t, book.At("ERROR", ""))
	}
}

// An endless subscriber has no messages until it is closed.
type endless struct {
	out  chan *message.Message
	once sync.Once
}

func (e *endless) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return e.out, nil
}

func (e *endless) Close() error {
	e.once.Do(func() { close(e.out) })
	return nil
}

// The router of Watermill waits for its handlers when the context of Run ends, for as long as its CloseTimeout, and their contexts
// go on. So say the pages.
func TestTrap_ARouterWhoseContextEndsWaitsForItsHandlers(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		w := f.working(f.DB.DB)
		w.stop()
		f.Await(w.book, "INFO", "Closing router")
		close(w.finish)
		f.NoError(<-w.ended)
		f.NoError(w.subscriber.Close())
		f.Equal(int(outbox.Done), f.Row(w.id).Status)
		f.Len(f.Rows("{topic} = 'bills'"), 1)
		f.Empty(w.book.At("ERROR", ""))
	})
}
