package fanout

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

// A Dispatcher runs policies. Any number of dispatchers, in one process or many, may have the same policies: one of them
// runs each policy at a time, and the others stand by.
type Dispatcher struct {
	config  Config
	workers []*worker

	running chan struct{} // closed once the policies are worked on
	closing chan struct{} // closed when Close begins
	closed  chan struct{} // closed when the policies have stopped

	mu      sync.Mutex
	started bool
}

// closeGrace is how long Close waits for destinations that ignore their context, and for the database.
const closeGrace = 15 * time.Second

// NewDispatcher returns a dispatcher for the log of the outbox on db. It does not touch the database. A nil logger logs
// nothing. It returns an error if db is nil, or an *outbox.FieldError that names a bad field.
func NewDispatcher(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Dispatcher, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	o, err := outbox.New(db, outbox.Config{Dialect: config.Dialect, Schema: config.Schema, Table: config.Table, Store: config.Store}, logger)
	if err != nil {
		return nil, err
	}
	d := &Dispatcher{config: config, running: make(chan struct{}), closing: make(chan struct{}), closed: make(chan struct{})}
	for i := range d.config.Policies {
		p := &d.config.Policies[i]
		p.Destinations = slices.Clone(p.Destinations)
		w := &worker{
			config: &d.config, policy: p, outbox: o, closing: d.closing, woken: flow.NewNote(),
			inside: seam.Outbox(o),
			logger: seam.Outbox(o).Logger().With(watermill.LogFields{"policy": p.Name}), sent: make([]taken, len(p.Destinations))}
		if w.cursor, err = seam.NewCursor[outbox.LogMessage](o, seam.CursorConfig{
			Group: p.group(), Topic: seam.AllTopics, Lease: config.LeaseDuration, Version: p.Version, Shape: p.shape()}); err != nil {
			return nil, field.Rename("CursorConfig.Lease", "Config.LeaseDuration", err)
		}
		if p.Join != nil {
			if w.joins, err = join.NewCoordinator(db, join.Config{
				Dialect: config.Dialect, Schema: config.Schema, Table: config.Table, Store: config.Store}, logger); err != nil {
				return nil, err
			}
		}
		d.workers = append(d.workers, w)
	}
	return d, nil
}

// Run dispatches until ctx ends or Close is called, and then returns what Close returns. It can be called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	if err := d.start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-d.closing:
	}
	return d.Close()
}

func (d *Dispatcher) start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if flow.IsClosed(d.closing) {
		return outbox.ErrClosed
	}
	if d.started {
		return errors.New("fanout: it is already running")
	}
	d.started = true
	// The work ends with Close and not with ctx, so that a batch can be finished.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var workers sync.WaitGroup
	for _, w := range d.workers {
		workers.Go(func() { w.run(work) })
	}
	go func() {
		defer cancel()
		d.passWakeupsOn()
		expire := time.AfterFunc(d.config.DrainTimeout, cancel)
		defer expire.Stop()
		workers.Wait()
		close(d.closed)
	}()
	close(d.running)
	return nil
}

// passWakeupsOn passes wake-ups of other processes to the policies, until Close begins.
func (d *Dispatcher) passWakeupsOn() {
	wakeups := d.config.Wakeups
	for {
		select {
		case <-d.closing:
			return
		case topic, open := <-wakeups:
			if !open {
				wakeups = nil // nil blocks: polling goes on
				continue
			}
			var topics []string // none means all
			if topic != "" {
				topics = []string{topic}
			}
			for _, w := range d.workers {
				w.wake(topics)
			}
		}
	}
}

// Running is closed once the policies are running.
func (d *Dispatcher) Running() <-chan struct{} { return d.running }

// Close stops dispatching. A batch may be finished within DrainTimeout; otherwise the next dispatcher sends it again, as
// after a crash. It returns an error if a destination or the database did not answer in time. It is bounded, idempotent, and
// safe to call from many goroutines.
func (d *Dispatcher) Close() error {
	d.mu.Lock()
	if !flow.IsClosed(d.closing) {
		close(d.closing)
		if !d.started {
			close(d.closed)
		}
	}
	d.mu.Unlock()
	hung := time.NewTimer(d.config.DrainTimeout + closeGrace)
	defer hung.Stop()
	select {
	case <-d.closed:
		return nil
	case <-hung.C:
		return errors.New("fanout: a destination or the database did not answer before Close gave up; its policy goes on elsewhere when the lease runs out")
	}
}
