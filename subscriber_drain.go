package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/flow"
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
// in time are given back. The error names what has not stopped when ctx ends. The router may be nil. One whose Run is given a
// context that ends before Drain also waits for its handlers, but for RouterConfig.CloseTimeout, and not until this deadline.
//
// Closers, in any order, are what takes messages from somewhere: Subscribers, Forwarders, fanout Dispatchers, other
// subscribers. They stop at the same time as the router. What their handlers use may be passed, too, and is closed after them:
// publishers (whatever has a method Publish) once all of these have stopped, and a *sql.DB (whatever has BeginTx) once the
// publishers have. If ctx ends before its turn, it stays open, and the error names it. A Sequencer and a Projection have only
// Run: end its context and wait for Run before the database is closed. If a closer has a method
// Shutdown(context.Context) error, that is called instead of Close.
func Drain(ctx context.Context, router *message.Router, closers ...io.Closer) error {
	var turns [3][]stopping
	d := draining{open: map[string]bool{}, ended: make(chan stopped, len(closers)+1)}
	for i, c := range closers {
		name := fmt.Sprintf("closer %d, a %T", i+1, c)
		if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			d.fail(name, errNilCloser)
			continue
		}
		turn := turnOf(c)
		turns[turn] = append(turns[turn], stopping{name, func() error { return shutdown(ctx, c) }})
	}
	if router != nil {
		d.stop(stopping{"the router, because a handler has not returned", router.Close})
		awaitClosing(ctx, router)
	}
	for turn, stoppings := range turns {
		for _, s := range stoppings {
			if turn > 0 && ctx.Err() != nil {
				d.fail(s.name, fmt.Errorf("not closed, as what may use it has not stopped in time: %w", context.Cause(ctx)))
				continue
			}
			d.stop(s)
		}
		d.wait(ctx)
	}
	return errors.Join(d.failures...)
}

var errNilCloser = errors.New("is nil; pass only what there is")

// A stopping is something that Drain stops.
type stopping struct {
	name string
	stop func() error
}

type stopped struct {
	name string
	err  error
}

type draining struct {
	open     map[string]bool
	ended    chan stopped
	failures []error
}

func (d *draining) stop(s stopping) {
	d.open[s.name] = true
	go func() { d.ended <- stopped{s.name, s.stop()} }()
}

func (d *draining) fail(name string, err error) {
	d.failures = append(d.failures, fmt.Errorf("outbox: drain: %s: %w", name, err))
}

// wait returns when everything that is being stopped has stopped, or ctx has ended.
func (d *draining) wait(ctx context.Context) {
	for len(d.open) > 0 {
		select {
		case s := <-d.ended:
			delete(d.open, s.name)
			if s.err != nil {
				d.fail(s.name, s.err)
			}
		case <-ctx.Done():
			for name := range d.open {
				d.fail(name, fmt.Errorf("not stopped in time: %w", context.Cause(ctx)))
			}
			clear(d.open)
		}
	}
}

// turnOf is when a closer's turn comes: 0 with the router, 1 after that, and 2 last.
func turnOf(c io.Closer) int {
	switch c.(type) {
	case interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	}:
		return 2
	case message.Publisher:
		return 1
	default:
		return 0
	}
}

// awaitClosing returns once a call of router.Close has begun. Otherwise the router could see all its subscriptions end first,
// which it logs as an error. While Close is at work, IsClosed does not return.
func awaitClosing(ctx context.Context, router *message.Router) {
	const begun = 10 * time.Millisecond
	for {
		answer := make(chan bool, 1)
		go func() { answer <- router.IsClosed() }()
		timer := time.NewTimer(begun)
		select {
		case closed := <-answer:
			timer.Stop()
			if closed || flow.Pause(ctx, time.Millisecond) != nil {
				return
			}
		case <-timer.C:
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func shutdown(ctx context.Context, c io.Closer) error {
	if s, ok := c.(interface {
		Shutdown(ctx context.Context) error
	}); ok {
		return s.Shutdown(ctx)
	}
	return c.Close()
}
