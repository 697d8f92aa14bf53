// Forward-to-rabbitmq publishes orders in the transactions that write them, and forwards them to RabbitMQ, where they are
// consumed with watermill-amqp. In the middle the broker is stopped: orders are taken all the same, and arrive when it is
// back.
//
//	go run ./internal/demo/forward-to-rabbitmq                      a private RabbitMQ, if Debian's package is installed
//	go run ./internal/demo/forward-to-rabbitmq -amqp amqp://…       yours, which is not stopped
//
// Without either, it uses the rabbitmq of compose.yaml if that runs (make up). The orders are in a temporary SQLite file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/incursa/watermill-outbox/internal/rabbitmq"
)

func main() {
	url := flag.String("amqp", "", "the `URL` of a RabbitMQ to use instead of a private one")
	orders := flag.Int("orders", 1000, "how many orders to place")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *url, *orders, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "forward-to-rabbitmq:", err)
		os.Exit(1)
	}
}

// composeURL is the service of compose.yaml.
const composeURL = "amqp://guest:guest@127.0.0.1:15673/"

// run finds a broker and runs the show with it.
func run(ctx context.Context, url string, orders int, out io.Writer) (err error) {
	if url != "" {
		return show(ctx, broker{url: url}, orders, out)
	}
	if !rabbitmq.Installed() {
		conn, err := amqp091.Dial(composeURL)
		if err != nil {
			return errors.New("there is no RabbitMQ: install Debian's package rabbitmq-server, or start the one of compose.yaml (make up), or name yours by -amqp")
		}
		return errors.Join(conn.Close(), show(ctx, broker{url: composeURL}, orders, out))
	}
	fmt.Fprintln(out, "a private RabbitMQ starts …")
	node, err := rabbitmq.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	startCtx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := node.Start(startCtx); err != nil {
		return err
	}
	return show(ctx, broker{node.URL(), node}, orders, out)
}

// A broker may be one that can be stopped.
type broker struct {
	url  string
	node *rabbitmq.Node // nil if it is somebody else's
}
