// Package program is the command line of the services: one main is all of them, the others are one each.
package program

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
	"github.com/incursa/watermill-outbox/examples/event-registration/service"
	"github.com/incursa/watermill-outbox/examples/event-registration/tracing"
)

// Main runs services until SIGINT or SIGTERM, or a command beside services that run.
func Main(parts ...service.Part) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], parts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type settings struct {
	service.Config
	folder, listen string
}

func parse(args []string) (s settings, command []string, err error) {
	flags := flag.NewFlagSet(filepath.Base(os.Args[0]), flag.ContinueOnError)
	cache, err := os.UserCacheDir()
	if err != nil {
		return s, nil, err
	}
	flags.StringVar(&s.folder, "folder", filepath.Join(cache, "event-registration"), "of the SQLite file, the mails and the secret")
	flags.StringVar(&s.DSN, "dsn", os.Getenv("DATABASE_URL"), "postgres://… or sqlserver://…; without it, SQLite in the folder")
	flags.StringVar(&s.AMQP, "amqp", os.Getenv("AMQP_URL"), "amqp://… of RabbitMQ; without it, a broker in the process")
	flags.StringVar(&s.Redis, "redis", os.Getenv("REDIS_URL"), "redis://…; without it, limits are those of the process, and nothing is cached")
	flags.StringVar(&s.listen, "listen", "127.0.0.1:8080", "address")
	flags.DurationVar(&s.OfferFor, "offer", 0, "how long a seat is held for somebody from the waitlist; 0: a promotion needs no answer")
	flags.DurationVar(&s.Lease, "lease", 30*time.Second, "how long a message stays with a process that has died")
	flags.Float64Var(&s.Rate, "rate", 50, "requests a second that each user may make")
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
	s.Auth = httpapi.AuthConfig{Issuer: "event-registration", Audience: "event-registration", Secret: []byte(os.Getenv("TOKEN_SECRET"))}
	if len(s.Auth.Secret) == 0 {
		s.Auth.Secret, err = secret(filepath.Join(s.folder, "secret"))
	}
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

func run(ctx context.Context, args []string, parts []service.Part) (err error) {
	s, command, err := parse(args)
	if err != nil {
		return err
	}
	s.Parts = parts
	if len(command) == 2 && command[0] == "token" {
		return printToken(s.Auth, command[1])
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	provider, stopTracing, err := tracing.FromEnvironment(ctx, filepath.Base(os.Args[0]))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopTracing(context.WithoutCancel(ctx))) }()
	s.TracerProvider = provider
	services, err := service.Open(ctx, s.Config, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Close()) }()
	if len(command) > 0 {
		return do(ctx, services, command)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s, files in %s\n", listener.Addr(), s.folder)
	return services.Run(ctx, listener)
}
