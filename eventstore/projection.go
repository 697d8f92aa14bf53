package eventstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/internal/quiet"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// ProjectionConfig configures a Projection.
type ProjectionConfig struct {
	// Name is the consumer group whose position the projection is at. A projection with a new name begins with the first
	// event: so a view is rebuilt in tables of its own, beside the running one. Required.
	Name string

	// Apply writes what follows from an event, in tx and nowhere else: with a position, all of it is committed or none of it. ctx
	// carries tx, so that a Publisher finds it. Events that do not concern the projection are for Apply to pass over. Required.
	Apply func(ctx context.Context, tx *sql.Tx, e Event) error

	// BatchSize is how many positions of the log one transaction takes, 1 to 1,000. Defaults to 100.
	BatchSize int

	// LeaseDuration is how long another process waits before it takes the projection over from one that died. Defaults to 30 s.
	LeaseDuration time.Duration

	// UnhandledAfter is how long committed events may wait for a position in the log before Run logs an error that names the
	// Sequencer, and how often Run looks for such events. Defaults to 1 min; -1 means never.
	UnhandledAfter time.Duration

	// OnLive is called each time the projection has caught up with the log. Defaults to none.
	OnLive func(position int64)
}

// A Projection applies all events, each once, in the order of their positions, and never passes over one. Any number of
// processes may run it: one of them works, and the others stand by.
type Projection struct {
	store    *Store
	config   ProjectionConfig
	logger   watermill.LoggerAdapter
	troubles *quiet.Troubles
}

// A ProjectionError says which event a projection cannot apply. The projection stands before it, with all events before it
// applied, and goes on from there when it is run again.
type ProjectionError struct {
	Projection string
	Event      Event
	Err        error // of Apply
}

func (e *ProjectionError) Error() string {
	return fmt.Sprintf("eventstore: the projection %q stops at position %d, version %d of the stream %q, an event of type %q: %v",
		e.Projection, e.Event.Position, e.Event.Version, e.Event.Stream, e.Event.Type, e.Err)
}

func (e *ProjectionError) Unwrap() error { return e.Err }

// NewProjection returns a projection, which Run runs. It does not touch the database. It returns an *outbox.FieldError that names
// a bad field.
func (s *Store) NewProjection(config ProjectionConfig) (*Projection, error) {
	field.Default(&config.BatchSize, 100)
	field.Default(&config.LeaseDuration, limits.DefaultLease)
	field.Default(&config.UnhandledAfter, time.Minute)
	if config.Apply == nil {
		return nil, field.Bad("ProjectionConfig.Apply", "is nil")
	}
	if config.BatchSize < 1 || config.BatchSize > pageEvents {
		return nil, field.Bad("ProjectionConfig.BatchSize", "%d is not between 1 and %d", config.BatchSize, pageEvents)
	}
	if config.UnhandledAfter < 0 && config.UnhandledAfter != -1 {
		return nil, field.Bad("ProjectionConfig.UnhandledAfter", "is negative; -1 means never")
	}
	p := &Projection{store: s, config: config, logger: s.inside.Logger().With(watermill.LogFields{"projection": config.Name})}
	p.troubles = quiet.New(p.logger)
	if _, err := p.cursor(); err != nil {
		err = field.Rename("CursorConfig.Group", "ProjectionConfig.Name", err)
		return nil, field.Rename("CursorConfig.Lease", "ProjectionConfig.LeaseDuration", err)
	}
	return p, nil
}

func (p *Projection) cursor() (seam.Cursor[outbox.LogMessage], error) {
	return seam.NewCursor[outbox.LogMessage](p.store.outbox, seam.CursorConfig{
		Group: p.config.Name, Topic: seam.AllTopics, Lease: p.config.LeaseDuration})
}

// Run applies events until ctx ends, and then returns nil. Errors of the database, and those marked by outbox.Unavailable, are
// logged and retried. It returns a *ProjectionError for an event that Apply refuses twice while the database answers.
func (p *Projection) Run(ctx context.Context) error {
	cursor, err := p.cursor()
	if err != nil {
		return err
	}
	r := &projecting{Projection: p, cursor: cursor, waiter: p.store.newWaiter()}
	defer r.waiter.stop()
	defer r.release(context.WithoutCancel(ctx))
	defer p.watch(ctx)()
	for ctx.Err() == nil {
		err := r.turn(ctx)
		var poison *ProjectionError
		switch {
		case errors.As(err, &poison):
			p.logger.Error("A projection stops", err, nil)
			return err
		case ctx.Err() != nil:
			return nil
		case err == nil:
			p.troubles.Over(cannotProject)
		case errors.Is(err, base.ErrLeaseHeld), errors.Is(err, outbox.ErrLeaseLost): // another process works; this one stands by
			r.known, r.held = false, false
			_ = r.waiter.wait(ctx)
		default:
			p.tellIfWentBack(err)
			p.troubles.Error(cannotProject, err, nil)
			r.known = false
			_ = r.waiter.wait(ctx)
		}
	}
	return nil
}

// watch warns, until stop is called, while no Sequencer is at work.
func (p *Projection) watch(ctx context.Context) (stop func()) {
	if p.config.UnhandledAfter < 0 {
		return func() {}
	}
	const cannotLook = "Cannot look whether a Sequencer is at work, trying again"
	look := seam.WatchSequencer(p.store.outbox, p.logger, p.config.LeaseDuration, p.config.UnhandledAfter)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for flow.Pause(ctx, p.config.UnhandledAfter) == nil {
			if err := look(ctx); err == nil {
				p.troubles.Over(cannotLook)
			} else if ctx.Err() == nil {
				p.troubles.Error(cannotLook, err, nil)
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

func (p *Projection) tellIfWentBack(err error) {
	var wentBack *outbox.LogWentBackError
	if hook := p.store.config.Hooks.OnLogWentBack; hook != nil && errors.As(err, &wentBack) {
		hook(wentBack)
	}
}

const cannotProject = "A projection cannot go on, trying again"

// projecting is one run of a projection.
type projecting struct {
	*Projection
	cursor   seam.Cursor[outbox.LogMessage]
	waiter   *waiter
	position int64
	known    bool // the position, and that this run has the lease
	held     bool // the lease was taken, and nobody else is known to have it
	live     bool
	leased   time.Time
}

// turn applies what comes next, or waits for it.
func (r *projecting) turn(ctx context.Context) error {
	if err := r.hold(ctx); err != nil {
		return err
	}
	page, reached, err := r.read(ctx)
	if err != nil {
		return err
	}
	if reached == r.position {
		if !r.live && r.config.OnLive != nil {
			r.config.OnLive(r.position)
		}
		r.live = true
		_ = r.waiter.wait(ctx)
		return nil
	}
	r.live = false
	r.waiter.busy()
	return r.apply(ctx, page, reached)
}

// hold takes the lease, or extends it when it is time.
func (r *projecting) hold(ctx context.Context) (err error) {
	if r.known && time.Since(r.leased) < limits.RenewEvery(r.config.LeaseDuration) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limits.Renewing(r.config.LeaseDuration))
	defer cancel()
	at := time.Now()
	if r.known { // with the position: a database that has come back older is noticed, however short its log is
		err = r.cursor.Advance(ctx, r.store.db, r.position, r.position)
	} else {
		r.position, err = r.cursor.Acquire(ctx)
	}
	if err == nil {
		r.known, r.held, r.leased = true, true, at
	}
	return err
}

func (r *projecting) read(ctx context.Context) (page []Event, reached int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, limits.Reading(r.config.LeaseDuration))
	defer cancel()
	return r.store.page(ctx, ReadAllParams{After: r.position, To: math.MaxInt64}, r.config.BatchSize)
}

// apply applies a batch in one transaction. If that fails, it applies event by event, so that the one that cannot be applied is
// known, and those before it are done. An event that is refused only now, by itself, gets a second try.
func (r *projecting) apply(ctx context.Context, page []Event, reached int64) error {
	err := r.commit(ctx, page, reached)
	var refused *ProjectionError
	if !errors.As(err, &refused) {
		return err
	}
	first := refused.Event.Position
	for i := range page {
		err := r.commit(ctx, page[i:i+1], page[i].Position)
		if errors.As(err, &refused) && page[i].Position != first {
			err = r.commit(ctx, page[i:i+1], page[i].Position)
		}
		if !errors.As(err, &refused) {
			if err != nil {
				return err
			}
			continue
		}
		if outage := r.outage(ctx, refused.Err); outage != nil {
			return outage
		}
		return refused
	}
	return nil
}

// outage returns an error if Apply may have failed because something was away.
func (r *projecting) outage(ctx context.Context, err error) error {
	if base.IsUnavailable(err) || outbox.IsRetryable(err) {
		return fmt.Errorf("apply an event: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, limits.Renewing(r.config.LeaseDuration))
	defer cancel()
	if err := r.store.db.PingContext(ctx); err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	return nil
}

// commit applies events, and moves the position past them in the same transaction. The position comes last, so that the lease
// can be renewed meanwhile; if somebody else has taken it, nothing of this is committed.
func (r *projecting) commit(ctx context.Context, events []Event, reached int64) error {
	stop := r.renew(ctx)
	defer stop()
	at := time.Now()
	err := r.store.inside.InTx(ctx, r.store.db, func(ctx context.Context, x outbox.Executor) error {
		tx, ok := x.(*sql.Tx)
		if !ok {
			return fmt.Errorf("apply events: the transaction is a %T", x)
		}
		for i := range events {
			at = time.Now()
			if err := r.config.Apply(ctx, tx, events[i]); err != nil {
				return &ProjectionError{Projection: r.config.Name, Event: events[i], Err: err}
			}
		}
		return r.cursor.Advance(ctx, tx, r.position, reached)
	})
	if err != nil {
		r.known = r.known && errors.As(err, new(*ProjectionError)) // otherwise the position is asked for again
		return err
	}
	r.position, r.leased = reached, at
	return nil
}

// renew extends the lease until stop is called, while Apply takes its time.
func (r *projecting) renew(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(limits.RenewEvery(r.config.LeaseDuration))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				limited, cancel := context.WithTimeout(ctx, limits.Renewing(r.config.LeaseDuration))
				_ = r.cursor.Renew(limited) // a lease that is lost stops the position from moving
				cancel()
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// release gives the lease back, so that another process need not wait.
func (r *projecting) release(ctx context.Context) {
	if !r.held {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limits.Renewing(r.config.LeaseDuration))
	defer cancel()
	if err := r.cursor.Release(ctx); err != nil {
		r.logger.Error("Cannot release the lease of a projection; it will expire", err, nil)
	}
}
