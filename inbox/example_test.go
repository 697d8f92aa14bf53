package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// A message that comes twice has its effect once.
func Example() {
	ctx := context.Background()
	db, closeDB := openExample(ctx) // outbox.OpenSQLite, inbox.Migrate
	defer closeDB()
	in, err := inbox.New(db, inbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	once, err := middleware.Inbox(in, inbox.Identity{Source: "shop", Handler: "ship"}) // router.AddMiddleware(once)
	check(err)
	ship := once(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("shipping", string(msg.Payload))
		tx, _ := outbox.TxFrom(msg.Context())
		_, err := tx.ExecContext(msg.Context(), "INSERT INTO shipments (what) VALUES ($1)", string(msg.Payload))
		return nil, err
	})
	for range 2 { // as a broker delivers it
		_, err = ship(message.NewMessage("order 1", []byte("a book")))
		check(err)
	}
	// Output: shipping a book
}

// Receive now, work later.
func ExampleInbox_Enqueue() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	in, err := inbox.New(db, inbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	order := inbox.Received{
		Key:     inbox.Key{Source: "shop", MessageID: "order 1", Handler: "ship"},
		Message: outbox.Message{Payload: []byte("a book")},
	}
	for range 2 {
		ids, err := in.Enqueue(ctx, nil, order)
		check(err)
		fmt.Println("new:", ids[0] != outbox.MessageID{})
	}
	subscriber, err := inbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	messages, err := subscriber.Subscribe(ctx, "ship")
	check(err)
	msg := <-messages
	fmt.Println("shipping", string(msg.Payload))
	msg.Ack()
	check(subscriber.Close())
	// Output:
	// new: true
	// new: false
	// shipping a book
}

func openExample(ctx context.Context) (*sql.DB, func()) {
	folder, err := os.MkdirTemp("", "inbox")
	check(err)
	dsn := "file:" + filepath.Join(folder, "shop.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	db, err := outbox.OpenSQLite("sqlite", dsn)
	check(err)
	check(inbox.Migrate(ctx, db, inbox.Config{Dialect: outbox.SQLite{}}))
	_, err = db.ExecContext(ctx, "CREATE TABLE shipments (what TEXT NOT NULL)")
	check(err)
	return db, func() {
		check(db.Close())
		check(os.RemoveAll(folder))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
