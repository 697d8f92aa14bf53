package stores

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// MigrateConfig configures Migrate.
type MigrateConfig struct {
	// Migrate says what to install; Dialect, Schema and Table are replaced by those of each store.
	Migrate outbox.MigrateConfig

	// Concurrency is how many stores are migrated at once. Defaults to 4.
	Concurrency int

	// Timeout limits the time for one store, including connecting to it. Defaults to 5 min.
	Timeout time.Duration

	// OnProgress is called after each store, one call at a time, for a progress bar. Defaults to nothing.
	OnProgress func(Progress)
}

// Progress says how far Migrate has come.
type Progress struct {
	Done, Failed, Total int       // Failed are among Done
	Last                Migration // the one that has just ended
}

// A Migration is the result for one store.
type Migration struct {
	Store string
	Took  time.Duration
	Err   error // nil if everything is installed
}

// A Report has the results for all stores, in their order.
type Report []Migration

// Failed are those that failed, with the reason.
func (r Report) Failed() Report {
	var failed Report
	for _, m := range r {
		if m.Err != nil {
			failed = append(failed, m)
		}
	}
	return failed
}

// Err joins the errors, each with its store, or is nil.
func (r Report) Err() error {
	var failed []error
	for _, m := range r.Failed() {
		failed = append(failed, fmt.Errorf("store %q: %w", m.Store, m.Err))
	}
	return errors.Join(failed...)
}

// Migrate creates or updates the outbox of each store of a provider, as outbox.Migrate does, a bounded number at a time. It
// continues after a failure: the report covers every store, and the error joins the failures. Run it again to do the rest.
func Migrate(ctx context.Context, provider Provider, config MigrateConfig) (Report, error) {
	field.Default(&config.Concurrency, 4)
	field.Default(&config.Timeout, 5*time.Minute)
	switch {
	case provider == nil:
		return nil, field.Bad("provider", "is nil; pass what NewStatic or NewDynamic returns")
	case config.Concurrency < 1:
		return nil, field.Bad("MigrateConfig.Concurrency", "%d is less than 1", config.Concurrency)
	case config.Timeout < 0:
		return nil, field.Bad("MigrateConfig.Timeout", "is negative")
	}
	if config.OnProgress == nil {
		config.OnProgress = func(Progress) {}
	}
	stores, _ := provider.Stores()
	report := make(Report, len(stores))
	progress := Progress{Total: len(stores)}
	var mu sync.Mutex
	var running sync.WaitGroup
	places := make(chan struct{}, config.Concurrency)
	for i, s := range stores {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			started := time.Now()
			err := migrate(ctx, s, config)
			m := Migration{Store: s.ID(), Took: time.Since(started), Err: err}
			mu.Lock()
			defer mu.Unlock()
			report[i] = m
			progress.Done++
			if m.Err != nil {
				progress.Failed++
			}
			progress.Last = m
			config.OnProgress(progress)
		})
	}
	running.Wait()
	return report, report.Err()
}

func migrate(ctx context.Context, s *Store, config MigrateConfig) (err error) {
	if err := ctx.Err(); err != nil {
		return err // the others were told to stop
	}
	if !s.use() {
		return fmt.Errorf("%w: it was taken away meanwhile", ErrUnknownStore)
	}
	defer func() { err = errors.Join(err, s.letGo()) }()
	ctx, cancel := context.WithTimeout(ctx, config.Timeout)
	defer cancel()
	c, d := config.Migrate, s.Database()
	c.Dialect, c.Schema, c.Table = d.Dialect, d.Schema, d.Table
	return outbox.Migrate(ctx, s.DB(), c)
}
