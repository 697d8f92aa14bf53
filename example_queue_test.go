package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// Check tells at startup whether the deployment has migrated the database.
func ExampleCheck() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()

	err := outbox.Check(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}, Table: "invoices"})
	fmt.Println("before:", errors.Is(err, outbox.ErrSchema))
	check(outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}, Table: "invoices"}))
	fmt.Println("after:", outbox.Check(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}, Table: "invoices"}))
	// Output:
	// before: true
	// after: <nil>
}

// The script is for a migration tool or a DBA.
func ExampleMigrationSQL() {
	script, err := outbox.MigrationSQL(outbox.MigrateConfig{Dialect: outbox.SQLServer{}, Schema: "sales"})
	check(err)
	role, err := outbox.RoleSQL(outbox.MigrateConfig{Dialect: outbox.SQLServer{}, Schema: "sales", Role: "sales_worker"})
	check(err)
	fmt.Println(len(script) > 0, len(role) > 0)
	// Output: true true
}

// A tool or a worker without Watermill claims messages, and settles each with its receipt.
func ExampleOutbox_Claim() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	_, err = o.Enqueue(ctx, db,
		outbox.Message{Topic: "orders", Payload: []byte("socks")},
		outbox.Message{Topic: "orders", Payload: []byte("unicorn")})
	check(err)

	claimed, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}, Lease: time.Minute})
	check(err)
	settlements := make([]outbox.Settlement, len(claimed))
	for i, c := range claimed {
		settlements[i] = outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Ack}
		if string(c.Payload) == "unicorn" {
			settlements[i].Outcome, settlements[i].Err = outbox.Fail, errors.New("there are no unicorns")
		}
	}
	refused, err := o.Settle(ctx, db, settlements)
	check(err)
	fmt.Printf("claimed %d, refused %d\n", len(claimed), len(refused))
	// Output: claimed 2, refused 0
}

// A delayed message is in the table from the commit on, and claimed once it is due.
func ExampleMessage() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	ids, err := o.Enqueue(ctx, db, outbox.Message{
		Topic: "reminders", Payload: []byte("pay"), Headers: map[string]string{"lang": "en"}, Delay: time.Hour})
	check(err)

	claimed, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "reminders"}}})
	check(err)
	records, err := o.Get(ctx, ids...)
	check(err)
	fmt.Println(len(claimed), records[0].Status, records[0].NextAttemptAt.Sub(records[0].CreatedAt).Round(time.Minute))
	// Output: 0 ready 1h0m0s
}

// What an operator does once the cause of dead letters is fixed.
func ExampleOutbox_Requeue() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	failNext(ctx, o, outbox.Message{Topic: "orders", Payload: []byte("socks")})

	failed, err := o.Failed(ctx, outbox.ListParams{Topic: "orders"})
	check(err)
	for _, r := range failed {
		fmt.Printf("%s: %s\n", r.Payload, r.LastError)
	}
	n, err := o.Requeue(ctx, outbox.RequeueParams{Topic: "orders"})
	check(err)
	fmt.Println("requeued", n)
	// Output:
	// socks: the carrier is closed
	// requeued 1
}

// A message that fails for good blocks its stream, and no other, until somebody decides.
func ExampleOutbox_BlockedStreams() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	failNext(ctx, o,
		outbox.Message{Topic: "orders", StreamKey: "customer-7", Payload: []byte("order 1")},
		outbox.Message{Topic: "orders", StreamKey: "customer-7", Payload: []byte("order 2")})

	blocked, err := o.BlockedStreams(ctx, outbox.ListParams{})
	check(err)
	for _, s := range blocked {
		fmt.Printf("%s waits with %d message behind: %s\n", s.StreamKey, s.Waiting, s.LastError)
		check(o.SkipHead(ctx, s.Topic, s.StreamKey)) // or RequeueStream, or DiscardStream
	}
	claimed, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}})
	check(err)
	fmt.Printf("goes on with %s\n", claimed[0].Payload)
	// Output:
	// customer-7 waits with 1 message behind: the carrier is closed
	// goes on with order 2
}

// failNext enqueues messages, and fails the first of them.
func failNext(ctx context.Context, o *outbox.Outbox, messages ...outbox.Message) {
	_, err := o.Enqueue(ctx, o.DB(), messages...)
	check(err)
	claimed, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: messages[0].Topic}}, Limit: 1})
	check(err)
	_, err = o.Settle(ctx, o.DB(), []outbox.Settlement{
		{Receipt: claimed[0].Receipt, Outcome: outbox.Fail, Err: errors.New("the carrier is closed")}})
	check(err)
}

// An outage of what the handler needs spends no attempt.
func ExampleUnavailable() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect: outbox.SQLite{},
		Backoff: outbox.ExponentialBackoff(time.Millisecond, time.Second),
	}, nil)
	check(err)
	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(middleware.Outcome)

	outages := 2
	router.AddConsumerHandler("ship", "orders", subscriber, func(msg *message.Message) error {
		delivery, ok := outbox.DeliveryFrom(msg.Context())
		if !ok {
			return errors.New("the message does not come from an outbox")
		}
		fmt.Println("attempt", delivery.Attempt())
		if outages > 0 {
			outages--
			return outbox.Unavailable(errors.New("the carrier does not answer"))
		}
		return nil
	})
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("socks"))))
	runUntilHandled(ctx, router, subscriber, 1)
	// Output:
	// attempt 1
	// attempt 1
	// attempt 1
}

// Each consumer group of the log gets every message, in order. A Sequencer gives the messages their positions.
func ExampleSequencer() {
	ctx, stop := context.WithCancel(context.Background())
	db, closeDB := openExample(ctx)
	defer closeDB()
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}, Log: outbox.LogOnly}, nil)
	check(err)
	sequencer, err := outbox.NewSequencer(db, outbox.SequencerConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	sequenced := make(chan error)
	go func() { sequenced <- sequencer.Run(ctx) }()

	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("socks"))))
	for _, group := range []string{"billing", "shipping"} {
		subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}, ConsumerGroup: group}, nil)
		check(err)
		messages, err := subscriber.Subscribe(ctx, "orders")
		check(err)
		msg := <-messages
		fmt.Printf("%s: %s\n", group, msg.Payload)
		msg.Ack()
		check(subscriber.Close())
	}
	stop()
	check(<-sequenced)
	// Output:
	// billing: socks
	// shipping: socks
}

// A deadlock victim runs its transaction again. The outbox does so in its own; a transaction of yours is yours to repeat.
func ExampleIsRetryable() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()

	placeOrder := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ('socks')")
		return err
	}
	err := outbox.InTx(ctx, db, placeOrder)
	for tries := 1; outbox.IsRetryable(err) && tries < 5; tries++ {
		err = outbox.InTx(ctx, db, placeOrder)
	}
	fmt.Println(err)
	// Output: <nil>
}

// The time to wait before each retry.
func ExampleExponentialBackoff() {
	backoff := outbox.ExponentialBackoff(time.Second, 10*time.Second)
	for retry := range 6 {
		fmt.Print(backoff(retry), " ")
	}
	// Output: 1s 2s 4s 8s 10s 10s
}

// Drain is for the end of a program, such as after SIGTERM: handlers finish, and what they have acked is settled.
func ExampleDrain() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	router := message.NewDefaultRouter(nil)
	working := make(chan struct{})
	router.AddConsumerHandler("ship", "orders", subscriber, func(*message.Message) error {
		close(working)
		return nil
	})
	ran := make(chan error)
	go func() { ran <- router.Run(ctx) }()
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("socks"))))
	<-working

	deadline, cancel := context.WithTimeout(ctx, 25*time.Second)
	defer cancel()
	check(outbox.Drain(deadline, router, subscriber))
	check(<-ran)

	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	topics, err := o.Topics(ctx)
	check(err)
	fmt.Println(len(topics), "topics with messages left")
	// Output: 0 topics with messages left
}
