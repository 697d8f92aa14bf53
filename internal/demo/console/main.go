// Command console shows the web console on stores with traffic: five databases, of which one cannot be reached, with handlers
// that fail now and then, blocked streams, joins that wait, consumer groups and an inbox.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/console"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

func main() { stage.Main(run) }

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("console", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8420", "`address` of the console")
	return stage.Run(ctx, flags, args, errOut, func() error { return show(ctx, *listen, time.Second, out) })
}

// show runs the shops and the console until ctx ends.
func show(ctx context.Context, listen string, sample time.Duration, out io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "console-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	logger := watermill.NewSlogLogger(slog.New(slog.DiscardHandler)) // handlers fail on purpose
	m, err := openMall(ctx, folder, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	web, err := console.New(console.Config{
		Provider:       m.provider,
		Authorize:      func(*http.Request, console.Action) error { return nil }, // on this machine, for everybody on it
		AllowChanges:   true,
		Actor:          func(*http.Request) string { return "you" },
		Redact:         hideCards,
		Status:         m.status,
		SampleInterval: sample,
	}, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	traffic := make(chan error, 1)
	go func() { traffic <- m.run(ctx) }()
	defer func() { cancel(); err = errors.Join(err, <-traffic) }()
	fmt.Fprintf(out, "The console is at http://%s/. Ctrl+C ends it.\n", listener.Addr())
	return serve(ctx, listener, web)
}

// serve answers until ctx ends; pages that are watching are then told to go.
func serve(ctx context.Context, listener net.Listener, web *console.Console) error {
	server := &http.Server{Handler: web, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second) // a browser's spare connection counts as busy for 5 s
	defer cancel()
	err := errors.Join(web.Close(), server.Shutdown(limited))
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// hideCards shows messages without the numbers of cards.
func hideCards(_ *http.Request, m *outbox.Message) bool {
	m.Payload = cards.ReplaceAll(m.Payload, []byte("•••• •••• •••• $1"))
	return true
}
