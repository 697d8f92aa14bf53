// Inbox-consumer shows a service whose broker delivers messages several times, and whose effects happen once nevertheless.
//
//	go run ./internal/demo/inbox-consumer                                      on SQLite, embedded: nothing to install
//	go run ./internal/demo/inbox-consumer -dsn postgres://user:password@host/db
//	go run ./internal/demo/inbox-consumer -dsn "sqlserver://user:password@host?database=db"
//
//	payments  are booked as their orders are received: booking, mark and receipt in one transaction   payments.go
//	parcels   are received into a queue and shipped later, with retries and a revival                  parcels.go
//
// The broker is Watermill's GoChannel, in the process. With RabbitMQ the same router has another subscriber.
package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

var inboxConsumer = stage.Story{Name: "inbox-consumer", Tables: tables, Tell: tell}

func main() {
	stage.Main(inboxConsumer.Run)
}

// tell is what you see.
func tell(ctx context.Context, database *stage.Database, screen *stage.Screen, logger watermill.LoggerAdapter) error {
	a, err := newApp(ctx, database, screen, logger)
	if err != nil {
		return err
	}
	if err := a.receive(ctx); err != nil {
		return err
	}
	duplicates, err := a.duplicates(ctx)
	if err != nil {
		return err
	}
	if err := a.shipLater(ctx); err != nil {
		return err
	}
	return a.printBalance(ctx, duplicates)
}
