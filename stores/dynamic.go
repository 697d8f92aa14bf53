package stores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/quiet"
)

// Dynamic is a Provider of the stores that a Discovery finds. Known stores stay as long as the Discovery lists them: a
// Discovery that fails changes nothing, and an unusable entry affects only itself.
type Dynamic struct {
	discovery Discovery
	config    DynamicConfig
	logger    watermill.LoggerAdapter
	troubles  *quiet.Troubles

	cancel context.CancelFunc
	done   chan struct{} // closed when refreshing has stopped

	refreshing chan struct{} // holds a token while one refreshes

	mu      sync.Mutex
	stores  []*Store
	changed chan struct{} // closed when stores changes
	closed  bool
}

var _ Provider = (*Dynamic)(nil)

// NewDynamic calls the Discovery once, within ctx, and then at its interval until Close. It returns the error of the first
// call, or an *outbox.FieldError that names a bad field, before that call. A nil logger logs nothing.
func NewDynamic(ctx context.Context, discovery Discovery, config DynamicConfig, logger watermill.LoggerAdapter) (*Dynamic, error) {
	if discovery == nil {
		return nil, field.Bad("discovery", "is nil; pass what finds the databases")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	d := &Dynamic{
		discovery: discovery, config: config, logger: logger, troubles: quiet.New(logger),
		done: make(chan struct{}), refreshing: make(chan struct{}, 1), changed: make(chan struct{})}
	if err := d.Refresh(ctx); err != nil {
		return nil, err
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.cancel = cancel
	go d.run(work)
	return d, nil
}

// Stores implements Provider.
func (d *Dynamic) Stores() ([]*Store, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stores, d.changed
}

// Refresh calls the Discovery now. New stores are opened, missing ones are closed once nothing uses them, changed ones are
// closed and opened, and the rest are kept. An error means that nothing changed; it is that of the Discovery, of ctx if it ends
// while another Refresh is under way, or outbox.ErrClosed. An unusable entry is logged with its identifier; an existing store
// with the same identifier stays as it is.
func (d *Dynamic) Refresh(ctx context.Context) error {
	select {
	case d.refreshing <- struct{}{}:
	default:
		select {
		case d.refreshing <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("wait for the refresh that is under way: %w", context.Cause(ctx))
		}
	}
	defer func() { <-d.refreshing }()
	ctx, cancel := context.WithTimeout(ctx, d.config.RefreshTimeout)
	defer cancel()
	databases, err := d.discovery.Databases(ctx)
	if err != nil {
		return fmt.Errorf("discover the databases: %w", err)
	}
	return d.install(databases)
}

// install makes the stores those of the databases.
func (d *Dynamic) install(databases []Database) error {
	present, _ := d.Stores()
	before := map[string]*Store{}
	for _, s := range present {
		before[s.ID()] = s
	}
	count := map[string]int{}
	for _, database := range databases {
		count[database.ID]++
	}
	var after, opened []*Store
	told := map[string]bool{}
	for i, database := range databases {
		old := before[database.ID]
		s, err := d.storeOf(database, old, count[database.ID])
		if s != nil && !slices.Contains(after, s) {
			after = append(after, s)
		}
		if s != nil && s != old {
			opened = append(opened, s)
		}
		if err != nil && !told[database.ID] {
			told[database.ID] = true
			d.logger.Error("A discovered database cannot be used; other stores are not affected", err,
				watermill.LogFields{"store": database.ID, "entry": i + 1, "kept": old != nil})
		}
	}
	if !d.replace(after) {
		d.retire(opened)
		return outbox.ErrClosed
	}
	var gone []*Store
	for _, s := range present {
		if !slices.Contains(after, s) {
			gone = append(gone, s)
		}
	}
	for _, s := range opened {
		d.logger.Info("Opened a store", watermill.LogFields{"store": s.ID()})
	}
	for _, s := range gone {
		d.logger.Info("Closed a store, which was removed or has changed", watermill.LogFields{"store": s.ID()})
	}
	d.retire(gone)
	return nil
}

// storeOf is the store for an entry: the old one if it still matches, or if the entry cannot be used.
func (d *Dynamic) storeOf(database Database, old *Store, times int) (*Store, error) {
	if times > 1 {
		return old, ErrDuplicateStore
	}
	database.setDefaults()
	if err := database.validate(); err != nil {
		return old, err
	}
	if old != nil && old.database.same(database) {
		old.weight.Store(int64(database.Weight))
		return old, nil
	}
	s, err := d.open(database)
	if err != nil {
		return old, err
	}
	return s, nil
}

func (d *Dynamic) open(database Database) (*Store, error) {
	db, err := d.config.Open(database)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	s, err := New(db, database, d.config.Outbox, d.logger)
	if err != nil {
		err = field.Rename("Config", "DynamicConfig.Outbox", err)
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		return nil, err
	}
	s.owned = true
	return s, nil
}

// replace returns false after Close.
func (d *Dynamic) replace(after []*Store) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	if !slices.Equal(d.stores, after) {
		d.stores = after
		close(d.changed)
		d.changed = make(chan struct{})
	}
	return true
}

func (d *Dynamic) retire(stores []*Store) {
	for _, s := range stores {
		if err := s.retire(); err != nil {
			d.logger.Error("Cannot close the pool of a store", err, watermill.LogFields{"store": s.ID()})
		}
	}
}

const cannotDiscover = "Cannot find out which databases there are; the stores stay as they are"

// run refreshes until ctx ends.
func (d *Dynamic) run(ctx context.Context) {
	defer close(d.done)
	wait := d.config.RefreshInterval
	retries := flow.Pauses{Shortest: d.config.RetryInterval, Longest: d.config.RefreshInterval}
	for flow.Pause(ctx, wait) == nil {
		wait = d.config.RefreshInterval
		err := d.Refresh(ctx)
		if err == nil {
			retries.Reset()
			d.troubles.Over(cannotDiscover)
			continue
		}
		if ctx.Err() == nil {
			wait = retries.Next()
			d.troubles.Error(cannotDiscover, err, watermill.LogFields{"next_try_in": wait.String()})
		}
	}
}

// closeGrace is how long Close waits for a Discovery that ignores its context.
const closeGrace = 15 * time.Second

var errLeftBehind = errors.New("stores: the Discovery ignores that its context has ended, and was left behind")

// Close stops refreshing and removes all stores. A pool is closed once nothing uses it, so close Subscribers first. It
// cancels the context of a Discovery that is running, and returns an error if that goes on for another 15 s, or if a pool cannot
// be closed. It is bounded, idempotent, and safe to call from many goroutines.
func (d *Dynamic) Close() error {
	d.cancel()
	var problems []error
	hung := time.NewTimer(closeGrace)
	defer hung.Stop()
	select {
	case <-d.done:
	case <-hung.C:
		problems = append(problems, errLeftBehind)
	}
	d.mu.Lock()
	stores := d.stores
	if !d.closed {
		d.closed = true
		d.stores = nil
		close(d.changed)
		d.changed = make(chan struct{})
	}
	d.mu.Unlock()
	for _, s := range stores {
		problems = append(problems, s.retire())
	}
	return errors.Join(problems...)
}
