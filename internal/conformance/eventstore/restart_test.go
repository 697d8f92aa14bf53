package eventstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testserver"
)

// While a database restarts, an append may fail, or succeed without an answer: with its id it is repeated. Subscriptions and
// projections go on.
func TestLong_ADatabaseThatRestartsLosesNoEventAndRepeatsNone(t *testing.T) {
	const writers, restarts = 8, 3
	each := full("OUTBOX_TEST_EVENTS", 60, 1000)
	s := require.New(t)
	server, dsn := testserver.Postgres(t)
	db, err := sql.Open("pgx", dsn)
	s.NoError(err)
	t.Cleanup(func() { s.NoError(db.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 4*testoutbox.Patience)
	t.Cleanup(cancel)
	s.NoError(outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.Postgres{}}))
	_, err = db.ExecContext(ctx, "CREATE TABLE sums (n bigint NOT NULL, total bigint NOT NULL); INSERT INTO sums VALUES (0, 0)")
	s.NoError(err)
	store, err := eventstore.New(db, eventstore.Config{Dialect: outbox.Postgres{}}, nil)
	s.NoError(err)

	var written, reading, working group
	appended := make(chan struct{}, writers*each)
	for w := range writers {
		written.Go(func() error { return appendInOrder(ctx, store, fmt.Sprint("stream ", w), each, appended) })
	}
	reading.Go(func() error { return followAll(ctx, store, writers*each) })
	work, stop := context.WithCancel(ctx)
	t.Cleanup(stop)
	sequencer, err := outbox.NewSequencer(db, outbox.SequencerConfig{Dialect: outbox.Postgres{}, PollInterval: time.Millisecond}, nil)
	s.NoError(err)
	projection, err := store.NewProjection(eventstore.ProjectionConfig{Name: "sums", LeaseDuration: time.Second,
		Apply: func(ctx context.Context, tx *sql.Tx, e eventstore.Event) error {
			_, err := tx.ExecContext(ctx, "UPDATE sums SET n = n + 1, total = total + $1::text::bigint", string(e.Payload))
			return err
		}})
	s.NoError(err)
	working.Go(func() error { return sequencer.Run(work) })
	working.Go(func() error { return projection.Run(work) })

	for n := range writers * each {
		select {
		case <-appended:
		case <-ctx.Done():
			s.NoError(ctx.Err())
		}
		if n%(writers*each/(restarts+1)) == writers*each/(restarts+1)-1 && n+1 < writers*each {
			s.NoError(server.Stop())
			s.NoError(server.Start())
		}
	}
	s.NoError(written.Wait())
	s.NoError(reading.Wait())
	for w := range writers {
		s.NoError(store.WaitFor(ctx, "sums", fmt.Sprint("stream ", w), int64(each)))
	}
	stop()
	s.NoError(working.Wait())
	var n, total int
	s.NoError(db.QueryRowContext(ctx, "SELECT n, total FROM sums").Scan(&n, &total))
	s.Equal([2]int{writers * each, writers * each * (each - 1) / 2}, [2]int{n, total})
}

// appendInOrder appends event by event, each until it is known to be there.
func appendInOrder(ctx context.Context, store *eventstore.Store, stream string, n int, appended chan<- struct{}) error {
	for i := range n {
		list := events(i, 1)
		var err error
		if list[0].ID, err = base.NewTimeOrderedID(); err != nil {
			return err
		}
		for {
			_, err := store.Append(ctx, nil, stream, eventstore.Exactly(int64(i)), list...)
			if err == nil {
				break
			}
			if isConflict(err) || flow.Pause(ctx, time.Millisecond) != nil {
				return err
			}
		}
		appended <- struct{}{}
	}
	return nil
}

// followAll reads all streams to their ends, and begins again after the last position it has seen.
func followAll(ctx context.Context, store *eventstore.Store, total int) error {
	seen := map[string]int64{}
	n, last := 0, int64(0)
	for {
		for e, err := range store.ReadAll(ctx, eventstore.ReadAllParams{After: last, Follow: true}) {
			if err != nil {
				break
			}
			if e.Version != seen[e.Stream]+1 || e.Position <= last {
				return fmt.Errorf("version %d of %s, at %d, comes after %d, at %d", e.Version, e.Stream, e.Position, seen[e.Stream], last)
			}
			seen[e.Stream], last = e.Version, e.Position
			if n++; n == total {
				return nil
			}
		}
		if err := flow.Pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}
