package join_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
)

// Two extractions, and the transformation when both have ended.
func Example() {
	ctx := context.Background()
	db, closeDB := openExample(ctx) // outbox.OpenSQLite, outbox.Migrate
	defer closeDB()
	joins, err := join.NewCoordinator(db, join.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(middleware.Outcome) // carries outbox.Permanent to the row, which fails the step at once

	// The handlers of the steps know nothing of joins.
	extract := func(*message.Message) error { return nil }
	router.AddConsumerHandler("customers", "extract.customers", subscriber, extract)
	router.AddConsumerHandler("orders", "extract.orders", subscriber, extract)

	joins.AddWaitHandler(router, subscriber)
	transformed := make(chan struct{})
	router.AddConsumerHandler("transform", "etl.transform", subscriber, func(msg *message.Message) error {
		fmt.Printf("%s of %s steps have completed: transform\n",
			msg.Metadata[join.HeaderCompletedSteps], msg.Metadata[join.HeaderExpectedSteps])
		close(transformed)
		return nil
	})

	customers := outbox.Message{Topic: "extract.customers"}
	orders := outbox.Message{Topic: "extract.orders"}
	err = outbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		id, err := joins.Start(ctx, tx, join.StartParams{ExpectedSteps: 2})
		if err != nil {
			return err // and nothing is sent
		}
		if _, err := joins.Enqueue(ctx, tx, id, customers, orders); err != nil {
			return err
		}
		_, err = joins.EnqueueWait(ctx, tx, join.Wait{Join: id, FailIfAnyStepFailed: true,
			OnComplete: join.Continuation{Topic: "etl.transform"}, OnFail: &join.Continuation{Topic: "etl.failed"}})
		return err
	})
	check(err)

	ran := make(chan error)
	go func() { ran <- router.Run(ctx) }()
	<-transformed
	check(router.Close())
	check(<-ran)
	check(subscriber.Close())
	// Output: 2 of 2 steps have completed: transform
}

// A Watermill Publisher whose messages become steps: the join travels in their context, as the transaction does.
func ExampleNewPublisher() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	joins, err := join.NewCoordinator(db, join.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	publisher, err := join.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, joins, nil)
	check(err)

	id, err := joins.Start(ctx, nil, join.StartParams{ExpectedSteps: 1})
	check(err)
	step := message.NewMessageWithContext(join.With(ctx, id), watermill.NewUUID(), []byte("socks"))
	check(publisher.Publish("orders", step))

	steps, err := joins.Steps(ctx, nil, id, outbox.MessageID{}, 10)
	check(err)
	fmt.Println(len(steps), "step,", steps[0].Status)
	// Output: 1 step, pending
}

// An open join takes steps until it is sealed, for when their number is not known at the start.
func ExampleCoordinator_Seal() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	joins, err := join.NewCoordinator(db, join.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)

	id, err := joins.Start(ctx, nil, join.StartParams{Open: true})
	check(err)
	for _, page := range []string{"a", "b", "c"} {
		_, err := joins.Enqueue(ctx, nil, id, outbox.Message{Topic: "crawl", Payload: []byte(page)})
		check(err)
	}
	handle(ctx, db, "crawl", 3)
	show(ctx, joins, id) // all that it has have ended, but more may come
	check(joins.Seal(ctx, nil, id))
	show(ctx, joins, id)
	// Output:
	// pending: 3 completed
	// completed: 3 completed
}

// With a quorum, a join ends as soon as so many steps have completed, open or not.
func ExampleStartParams_quorum() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	joins, err := join.NewCoordinator(db, join.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)

	id, err := joins.Start(ctx, nil, join.StartParams{Open: true, Quorum: 2})
	check(err)
	ask := outbox.Message{Topic: "ask"}
	_, err = joins.Enqueue(ctx, nil, id, ask, ask, ask)
	check(err)
	handle(ctx, db, "ask", 1)
	show(ctx, joins, id)
	handle(ctx, db, "ask", 1)
	show(ctx, joins, id) // the third may end as it likes
	// Output:
	// pending: 1 completed
	// completed: 2 completed
}

// handle claims and acks n messages of a topic, as a Subscriber does when their handler succeeds.
func handle(ctx context.Context, db *sql.DB, topic string, n int) {
	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	claimed, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topic}}, Limit: n})
	check(err)
	for _, c := range claimed {
		check(o.Ack(ctx, c.Receipt.Owner, c.Receipt.Seq))
	}
}

func show(ctx context.Context, joins *join.Coordinator, id join.ID) {
	j, err := joins.Get(ctx, nil, id)
	check(err)
	fmt.Printf("%v: %d completed\n", j.Status, j.CompletedSteps)
}

// openExample returns a new SQLite database with an outbox, and what removes it.
func openExample(ctx context.Context) (db *sql.DB, closeDB func()) {
	dir, err := os.MkdirTemp("", "outbox")
	check(err)
	dsn := "file:" + filepath.ToSlash(filepath.Join(dir, "shop.db")) + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	db, err = outbox.OpenSQLite("sqlite", dsn)
	check(err)
	check(outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}))
	return db, func() {
		check(db.Close())
		check(os.RemoveAll(dir))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
