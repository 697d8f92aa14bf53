package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Drain stops everything within the deadline of ctx, for a program that is told to end:
//
//	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
//	defer stop()
//	go router.Run(context.WithoutCancel(ctx))
//	<-ctx.Done()
//	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second) // Kubernetes kills after 30 s
//	defer cancel()
//	err := outbox.Drain(ctx, router, subscriber, forwarder)
//
// From then on nothing is claimed. Handlers finish, and their messages are settled; messages of handlers that do not finish
// in time are given back. Everything stops at the same time, and the error names what has not stopped when ctx ends. The
// router may be nil. A router that ends with ctx, before Drain, does not wait for its handlers.
//
// Closers can be a Subscriber, a Forwarder, or any other subscriber or publisher. If one has a method
// Shutdown(context.Context) error, that is called instead of Close.
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
