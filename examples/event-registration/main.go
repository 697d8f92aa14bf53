// Event-registration registers people for events: seats, waitlists, moderation, over HTTP. README.md shows it.
//
//	go run ./examples/event-registration
//
// It needs nothing installed: SQLite, and a broker in the process. With -dsn and -amqp it uses yours.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/examples/event-registration/service"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type settings struct {
	service.Config
	folder, listen string
}

func parse(args []string) (s settings, command []string, err error) {
	flags := flag.NewFlagSet("event-registration", flag.ContinueOnError)
	cache, err := os.UserCacheDir()
	if err != nil {
		return s, nil, err
	}
	flags.StringVar(&s.folder, "folder", filepath.Join(cache, "event-registration"), "of the SQLite file, the mails and the secret")
	flags.StringVar(&s.DSN, "dsn", "", "postgres://… or sqlserver://…; without it, SQLite in the folder")
	flags.StringVar(&s.AMQP, "amqp", os.Getenv("AMQP_URL"), "amqp://… of RabbitMQ; without it, a broker in the process")
	flags.StringVar(&s.listen, "listen", "127.0.0.1:8080", "address")
	flags.DurationVar(&s.OfferFor, "offer", 0, "how long a seat is held for somebody from the waitlist; 0: a promotion needs no answer")
	if err := flags.Parse(args); err != nil {
		return s, nil, err
	}
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return s, nil, err
	}
	if s.DSN == "" {
		s.DSN = filepath.Join(s.folder, "registration.db")
	}
	s.Mails = filepath.Join(s.folder, "mails")
	s.Auth = httpapi.AuthConfig{Issuer: "event-registration", Audience: "event-registration"}
	s.Auth.Secret, err = secret(filepath.Join(s.folder, "secret"))
	return s, flags.Args(), err
}

// secret reads the key that signs tokens, or makes one.
func secret(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	key = []byte(rand.Text() + rand.Text())
	return key, os.WriteFile(path, key, 0o600)
}

func run(ctx context.Context, args []string) (err error) {
	s, command, err := parse(args)
	if err != nil {
		return err
	}
	if len(command) == 2 && command[0] == "token" {
		text, err := s.Auth.Token(registration.Actor{UserID: command[1], Admin: command[1] == "admin"}, 24*time.Hour)
		fmt.Println(text)
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	all, err := service.Open(ctx, s.Config, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	if len(command) > 0 {
		return do(ctx, all, command)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s, mails in %s\n", listener.Addr(), s.Mails)
	return all.Run(ctx, listener)
}

// do runs a command beside services that run.
func do(ctx context.Context, all *service.Service, command []string) error {
	switch command[0] {
	case "event":
		return saveEvent(ctx, all, command[1:])
	case "reconcile":
		drifts, err := all.Registration().Reconcile(ctx)
		for _, d := range drifts {
			fmt.Printf("%s: active %d, is %d; waiting %d, is %d\n", d.Before.ID, d.Before.Active, d.After.Active, d.Before.Waiting, d.After.Waiting)
		}
		fmt.Printf("%d events put right\n", len(drifts))
		return err
	case "redrive":
		redriven, err := all.Redrive(ctx)
		for queue, n := range redriven {
			fmt.Printf("%s: %d redriven\n", queue, n)
		}
		return err
	}
	return fmt.Errorf("%q is not a command: event, token USER, reconcile, redrive", command[0])
}

func saveEvent(ctx context.Context, all *service.Service, args []string) error {
	flags := flag.NewFlagSet("event", flag.ContinueOnError)
	var e registration.Snapshot
	flags.StringVar(&e.EventID, "id", "", "of the event")
	flags.StringVar(&e.Title, "title", "", "of the event")
	flags.StringVar(&e.OrganizerID, "organizer", "", "the user who moderates it")
	flags.IntVar(&e.Capacity, "capacity", 0, "seats; 0 is unlimited")
	flags.IntVar(&e.WaitlistLimit, "waitlist", -1, "places on the waitlist; -1 is unlimited")
	flags.StringVar(&e.Status, "status", registration.EventOpen, "open, closed or canceled")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return all.Catalog().Save(ctx, e)
}
