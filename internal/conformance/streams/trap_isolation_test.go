package streams_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Workers that see what was committed before their transactions began, and not what was since, claim and settle streams in
// order: who has looked too early is told so, and tries again. Runs are settled in two halves, at the same time. Few streams
// have many messages; many have one at a time, so that they come and go.
func TestTrap_StreamsUnderOtherIsolationLevels(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		levels := map[string][]string{
			testdb.SQLite: {"PRAGMA read_uncommitted = 0"},
			testdb.Postgres: {"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
				"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"},
			testdb.SQLServer: {"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"},
		}
		const workers = 3
		for _, level := range levels[f.DB.Name] {
			for _, shape := range []struct{ streams, each int }{{4, 20}, {100, 3}} {
				topic := fmt.Sprint(level[len(level)-12:], shape)
				f.Ordered(topic, shape.streams, shape.each)
				w := &isolatedWorkers{fixture: f, topic: topic, left: shape.streams * shape.each, got: map[string][]string{}}
				failures := make([]error, workers)
				var group sync.WaitGroup
				for worker := range workers {
					pools := []*testdb.DB{f.DB.Reopen(t), f.DB.Reopen(t)}
					for _, pool := range pools {
						pool.SetMaxOpenConns(1)
						_, err := pool.ExecContext(f.Context(), level)
						f.NoError(err)
					}
					group.Go(func() {
						for failures[worker] == nil && !w.done() {
							failures[worker] = w.work(f.NewOutbox(pools[0].DB), f.NewOutbox(pools[1].DB))
						}
					})
				}
				group.Wait()
				f.NoError(errors.Join(failures...))
				for key, got := range w.got {
					want := suite.UUIDs(claimedOf(suite.OrderedMessages("", 1, 0, shape.each)))
					f.Equal(want, got, "%s of %s", key, level)
				}
			}
		}
	})
}

// A claim whose snapshot is older than what others have routed fails as one that is tried again, and not because the stream
// that it would add is there already. Only PostgreSQL has such snapshots and adds streams while it claims.
func TestTrap_RoutingByAnOldSnapshot(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return
		}
		f.Ordered("orders", 3, 1)
		old, err := f.DB.BeginTx(f.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		f.NoError(err)
		defer func() { _ = old.Rollback() }()
		var arrived int
		f.NoError(old.QueryRowContext(f.Context(), f.SQL("SELECT COUNT(*) FROM {arrivals} a")).Scan(&arrived))
		f.Equal(3, arrived)
		f.Len(f.Claim("orders"), 3)
		_, err = old.ExecContext(f.Context(), "SELECT "+f.Object("outbox_stream_route")+"(lane, 10, 0, NULL, NULL, NULL) FROM "+f.Object("outbox_router"))
		f.ErrorContains(err, "40001")
	})
}

func claimedOf(messages []outbox.Message) (claimed []outbox.Claimed) {
	for _, m := range messages {
		claimed = append(claimed, outbox.Claimed{Message: m})
	}
	return claimed
}

type isolatedWorkers struct {
	*fixture
	topic string

	mu   sync.Mutex
	left int
	got  map[string][]string // uuids by stream
}

func (w *isolatedWorkers) done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left == 0
}

// work claims, and settles the one half on one connection and the other on another.
func (w *isolatedWorkers) work(a, b *outbox.Outbox) error {
	claimed, err := a.Claim(w.Context(), outbox.ClaimParams{Topics: suite.Quotas(w.topic), Limit: 10})
	if err != nil {
		return err
	}
	w.mu.Lock()
	for _, c := range claimed {
		w.got[c.StreamKey] = append(w.got[c.StreamKey], c.UUID)
	}
	w.mu.Unlock()
	var halves [2][]outbox.Settlement
	for i, s := range suite.Settled(outbox.Ack, claimed...) {
		halves[i%2] = append(halves[i%2], s)
	}
	var errs [2]error
	var both sync.WaitGroup
	for i, o := range []*outbox.Outbox{a, b} {
		both.Go(func() {
			refused, err := o.Settle(w.Context(), o.DB(), halves[i])
			if len(refused) > 0 {
				err = errors.Join(err, errors.New("refused"))
			}
			errs[i] = err
		})
	}
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left -= len(claimed)
	return errors.Join(slices.Clone(errs[:])...)
}
