package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Drain stops everything within the deadline of ctx, as a program does that is told to end:
//
//	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
//	defer stop()
//	go router.Run(context.WithoutCancel(ctx))
//	<-ctx.Done()
//	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second) // Kubernetes kills after 30 s
//	defer cancel()
//	err := outbox.Drain(ctx, router, subscriber, forwarder)
//
// From the moment it is called, nothing more is claimed. Handlers finish and are settled; those that do not finish in
// time have their messages given back. Everything stops at once, not one after the other, and the error names what has not
// stopped when ctx ends. A nil router is none; a router that ends with ctx, before Drain, does not wait for its handlers.
//
// Whatever has a Close can be stopped along: a Subscriber, a Forwarder, another's subscriber or publisher. Where there is a
// Shutdown(context.Context) error, that is called.
func Drain(ctx context.Context, router *message.Router, closers ...io.Closer) error {
	type stopped struct {
		name string
		err  error
	}
	open, ended := map[string]bool{}, make(chan stopped, len(closers)+1)
	stop := func(name string, f func() error) {
		open[name] = true
		go func() { ended <- stopped{name, f()} }()
	}
	for i, c := range closers {
		stop(fmt.Sprintf("closer %d, a %T", i+1, c), func() error { return shutdown(ctx, c) })
	}
	if router != nil {
		stop("the router, because a handler has not returned", router.Close)
	}
	var failures []error
	for len(open) > 0 {
		select {
		case s := <-ended:
			delete(open, s.name)
			if s.err != nil {
				failures = append(failures, fmt.Errorf("outbox: drain: %s: %w", s.name, s.err))
			}
		case <-ctx.Done():
			for name := range open {
				failures = append(failures, fmt.Errorf("outbox: drain: %s: not stopped in time: %w", name, context.Cause(ctx)))
			}
			return errors.Join(failures...)
		}
	}
	return errors.Join(failures...)
}

func shutdown(ctx context.Context, c io.Closer) error {
	if s, ok := c.(interface {
		Shutdown(ctx context.Context) error
	}); ok {
		return s.Shutdown(ctx)
	}
	return c.Close()
}
