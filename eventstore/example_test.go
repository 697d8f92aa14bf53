package eventstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
)

// An order as events: each append says which version it builds on.
func Example() {
	ctx := context.Background()
	db, closeDB := openExample(ctx) // outbox.OpenSQLite, outbox.Migrate
	defer closeDB()
	store, err := eventstore.New(db, eventstore.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)

	placed := eventstore.Event{Type: "OrderPlaced", Payload: []byte("a book")}
	_, err = store.Append(ctx, nil, "order-7", eventstore.NoStream, placed)
	check(err)
	err = outbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error { // with whatever else you write
		_, err := store.Append(ctx, tx, "order-7", eventstore.Exactly(1), eventstore.Event{Type: "OrderShipped"})
		return err
	})
	check(err)

	_, err = store.Append(ctx, nil, "order-7", eventstore.Exactly(1), eventstore.Event{Type: "OrderCancelled"})
	fmt.Println(err, errors.Is(err, eventstore.ErrVersionConflict))

	for e, err := range store.Read(ctx, nil, "order-7", eventstore.ReadParams{}) {
		check(err)
		fmt.Println(e.Version, e.Type)
	}
	// Output:
	// eventstore: the stream "order-7" is at version 2, and version 1 was expected; read what is new, decide again, append that true
	// 1 OrderPlaced
	// 2 OrderShipped
}

func openExample(ctx context.Context) (*sql.DB, func()) {
	folder, err := os.MkdirTemp("", "eventstore")
	check(err)
	dsn := "file:" + filepath.Join(folder, "shop.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	db, err := outbox.OpenSQLite("sqlite", dsn)
	check(err)
	check(outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}))
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
