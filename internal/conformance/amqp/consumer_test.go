package amqp_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	configs "github.com/incursa/watermill-outbox/forwarder/amqp/wmamqp"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// consumerVariable makes the test program a consumer of RabbitMQ behind an inbox. Its value is the job.
const consumerVariable = "OUTBOX_TEST_CONSUMER"

type consumerJob struct {
	Backend, Driver, DSN, Schema string
	URL, Queue                   string
	Effects, Balance             string // the tables of the application
}

// What the process tells, a line each.
const (
	toldHandled   = "handled"   // the effects of a message are written, and nothing is committed before a line is answered
	toldCommitted = "committed" // a delivery has passed the inbox, and is not acknowledged yet
	toldReturned  = "returned"  // a delivery goes back to the broker, for an error or because the process ends
)

const (
	// subscriptions is how many messages a process handles at once: each takes one after the other.
	subscriptions = 4

	// prefetch is how many deliveries each of them holds, which a killed process gives back.
	prefetch = 20
)

// run is the process: an ordinary Watermill router on watermill-amqp, with the inbox before its handler.
func (job consumerJob) run() (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	in, err := inbox.New(db, inbox.Config{Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema}, nil)
	if err != nil {
		return err
	}
	once, err := middleware.Inbox(in, bookIdentity)
	if err != nil {
		return err
	}
	publisher, err := outbox.NewPublisher(nil, outbox.PublisherConfig{Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, RequireTx: true}, nil)
	if err != nil {
		return err
	}
	config := configs.Config(job.URL)
	config.Consume.Qos.PrefetchCount = prefetch
	subscriber, err := wmamqp.NewSubscriber(config, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(event string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(os.Stdout, event)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	goOn := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			goOn <- struct{}{}
		}
		close(goOn) // its end is the end of the job, however it comes
		stop()
	}()
	router.AddMiddleware(telling(tell), once)
	for i := range subscriptions {
		router.AddConsumerHandler(fmt.Sprint("book ", i), job.Queue, subscriber, func(msg *message.Message) error {
			err := job.book(msg, publisher)
			if err == nil {
				tell(toldHandled)
				<-goOn
			}
			return err
		})
	}
	return router.Run(ctx)
}

var bookIdentity = inbox.Identity{Source: "rabbitmq", Handler: "book"}

// book has three effects. Nothing in the tables would refuse a second time.
func (job consumerJob) book(msg *message.Message, publisher message.Publisher) error {
	tx, ok := outbox.TxFrom(msg.Context())
	if !ok {
		return errors.New("the handler finds no transaction")
	}
	for _, statement := range []string{
		fmt.Sprintf("INSERT INTO %s (id) VALUES (%s)", job.Effects, msg.UUID),
		fmt.Sprintf("UPDATE %s SET total = total + 1", job.Balance),
	} {
		if _, err := tx.ExecContext(msg.Context(), statement); err != nil {
			return err
		}
	}
	return publisher.Publish("booked", message.NewMessageWithContext(msg.Context(), msg.UUID, msg.Payload))
}

// telling tells how a delivery has passed what stands behind it.
func telling(tell func(string)) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err != nil {
				tell(toldReturned)
				return nil, err
			}
			tell(toldCommitted)
			return produced, nil
		}
	}
}
