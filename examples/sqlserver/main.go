// Sqlserver is the quickstart on SQL Server or Azure SQL: an order and its message in one transaction, and a Watermill
// router that gets the message.
//
//	go run ./examples/sqlserver -dsn "sqlserver://sa:password@localhost?database=shop"
//	go run ./examples/sqlserver -sql      print the installation script, for a DBA or a migration tool
//
// It creates the outbox and the table ExampleOrders in that database, and leaves them there.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/microsoft/go-mssqldb"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

const topic = "example-orders"

var install = outbox.MigrateConfig{Dialect: outbox.SQLServer{}} // dbo.Outbox; Schema and Table name another

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // leaves the output readable
	dsn := flag.String("dsn", os.Getenv("SQLSERVER_DSN"), "the `DSN` of a database, as go-mssqldb reads it (default $SQLSERVER_DSN)")
	printSQL := flag.Bool("sql", false, "print the installation script, and do nothing else")
	flag.Parse()
	if *printSQL {
		script, err := outbox.MigrationSQL(install)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(script)
		return
	}
	if *dsn == "" {
		fmt.Fprintln(os.Stderr, `This example needs an empty database on SQL Server, 2019 or later. Start a server with

	docker run --rm -p 1433:1433 -e ACCEPT_EULA=Y -e MSSQL_SA_PASSWORD=Passw0rd mcr.microsoft.com/mssql/server:2022-latest

create a database, and run this again with -dsn "sqlserver://sa:Passw0rd@localhost?database=shop&TrustServerCertificate=true".
With -sql it prints what would be installed.`)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err := run(ctx, stop, *dsn); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stop func(), dsn string) error {
	db, err := sql.Open("sqlserver", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := outbox.Migrate(ctx, db, install); err != nil {
		return err
	}
	// A service that does not migrate calls Check at its start: it names what is missing or wrong.
	if err := outbox.Check(ctx, db, install); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "IF OBJECT_ID('ExampleOrders') IS NULL CREATE TABLE ExampleOrders (Item NVARCHAR(100))")
	if err != nil {
		return err
	}

	logger := watermill.NewSlogLogger(nil)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLServer{}}, logger)
	if err != nil {
		return err
	}
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLServer{}}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("ship", topic, subscriber, func(msg *message.Message) error {
		fmt.Printf("shipped %s\n", msg.Payload)
		stop() // the end of this program; a service runs on
		return nil
	})

	if err := placeOrder(ctx, db, publisher, "socks"); err != nil {
		return err
	}
	err = router.Run(ctx)                       // until ctx ends
	return errors.Join(err, subscriber.Close()) // before the database
}

// placeOrder runs the transaction again if it was the victim of a deadlock, or the server is failing over. The outbox does so in its
// own transactions; this one is the caller's.
func placeOrder(ctx context.Context, db *sql.DB, publisher message.Publisher, item string) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := outbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO ExampleOrders (Item) VALUES (@p1)", item); err != nil {
				return err
			}
			return publisher.Publish(topic, message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(item)))
		})
		if err == nil {
			fmt.Printf("ordered %s\n", item)
		}
		if !outbox.IsRetryable(err) {
			return err
		}
		select { // without a pause, a server that is too busy would only be busier
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
