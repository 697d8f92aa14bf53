package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// Callers without a transaction that publish at the same time share commits. Each returns once its own message is committed.
func ExampleBatch() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}, Flush: outbox.Batch}, nil)
	check(err)

	var requests sync.WaitGroup
	for i := range 20 {
		requests.Go(func() {
			check(publisher.Publish("orders", message.NewMessageWithContext(ctx, fmt.Sprint(i), []byte("socks"))))
		})
	}
	requests.Wait()
	check(publisher.Close())
	waiting(ctx, db)
	// Output: 20 orders
}

// In a transaction of your own, Flush comes before Commit. InTx does it itself.
func ExamplePublisher_Flush() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}, Flush: outbox.Scoped}, nil)
	check(err)

	tx, err := db.BeginTx(ctx, nil)
	check(err)
	inTx := outbox.WithTx(ctx, tx)
	for i := range 3 { // collected, and written with one insert
		check(publisher.Publish("orders", message.NewMessageWithContext(inTx, fmt.Sprint(i), []byte("socks"))))
	}
	check(publisher.Flush(inTx))
	check(tx.Commit())
	check(publisher.Close())
	waiting(ctx, db)
	// Output: 3 orders
}

func waiting(ctx context.Context, db *sql.DB) {
	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	topics, err := o.Topics(ctx)
	check(err)
	for _, topic := range topics {
		fmt.Println(topic.Waiting, topic.Topic)
	}
}
