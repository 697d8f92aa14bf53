package stores

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
)

// Pauses before f is run again in a store where it returned an error.
const (
	restartMin = 100 * time.Millisecond
	restartMax = 30 * time.Second
)

// Run runs f in each store of a provider, including stores added later, until ctx ends, and then waits for all of them. f
// may be a forwarder, a sequencer, a dispatcher, or a Subscriber that reads the log. Its context ends with ctx, or when its
// store is removed; the store's pool stays open until f has returned.
//
// If f returns an error before that, it is logged with its store and run again, after pauses that double up to 30 s; a
// minute without an error makes them short again. If f returns nil, it is done. A nil logger logs nothing.
func Run(ctx context.Context, provider Provider, f func(context.Context, *Store) error, logger watermill.LoggerAdapter) error {
	if provider == nil {
		return field.Bad("provider", "is nil; pass what NewStatic or NewDynamic returns")
	}
	if f == nil {
		return field.Bad("f", "is nil; pass what to run")
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	follow(provider, ctx.Done(), func([]*Store) {}, func(store *Store) (leave func()) {
		if !store.use() {
			return nil
		}
		logger := logger.With(watermill.LogFields{"store": store.ID()})
		running, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			keepRunning(running, store, f, logger)
		}()
		return func() {
			cancel()
			<-done
			if err := store.letGo(); err != nil {
				logger.Error("Cannot close the pool of a store", err, nil)
			}
		}
	})
	return nil
}

func keepRunning(ctx context.Context, store *Store, f func(context.Context, *Store) error, logger watermill.LoggerAdapter) {
	pauses := flow.Pauses{Shortest: restartMin, Longest: restartMax}
	for {
		started := time.Now()
		err := f(ctx, store)
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(started) > time.Minute {
			pauses.Reset()
		}
		wait := pauses.Next()
		logger.Error("A function running in a store has failed and will be run again", err, watermill.LogFields{"next_try_in": wait.String()})
		if flow.Pause(ctx, wait) != nil {
			return
		}
	}
}
