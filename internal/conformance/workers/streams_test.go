package workers_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// partition is the virtual partition of a stream.
func partition(key string) int64 {
	p := base.TopicKey("orders\x00"+key) % 10_000
	return max(p, -p)
}

// claimAs claims as one of two workers, whose shares are the halves of the partitions, and counts the streams by half.
func (f fixture) claimAs(half, limit int, patience time.Duration) (halves [2]int) {
	f.T.Helper()
	arg := map[string]any{"worker": "w", "owner": base.NewOwnerToken(), "lease_ms": 60_000, "limit": limit, "run": 1, "give_back": 0,
		"topics": []any{map[string]any{"key": base.TopicKey("orders"), "quota": limit}},
		"share":  map[string]any{"low": 5000 * half, "high": 5000*half + 4999, "workers": 2, "patience_ms": patience.Milliseconds()}}
	f.NoError(seam.Outbox(f.Outbox.Outbox).Run(f.T.Context(), f.DB.DB, "outbox_claim", arg, func(rows *sql.Rows) error {
		var key sql.NullString
		row := make([]any, 13)
		for i := range row {
			row[i] = new(any)
		}
		row[7] = &key
		err := rows.Scan(row...)
		halves[partition(key.String)/5000]++
		return err
	}))
	return halves
}

// A worker takes the ready streams of its own share first, and then others. Whoever has waited for long is taken by anyone, and
// nothing is left because another worker does not come.
func TestPhase9_AShareOfThePartitionsIsAPreference(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		const streams = 300
		f.ordered(streams, 1)
		var halves [2]int
		for i := range streams {
			halves[partition(fmt.Sprint(i))/5000]++
		}
		f.Greater(min(halves[0], halves[1]), streams/3)

		for half := range 2 {
			got := f.claimAs(half, 30, time.Hour)
			f.Equal(30, got[0]+got[1])
			f.GreaterOrEqual(got[half], 20, "of 60 that have waited longest, about 30 are its own")
		}
		impatient := f.claimAs(0, 100, 0)
		f.Equal(100, impatient[0]+impatient[1])
		f.Greater(impatient[1], 30, "nobody is preferred then")
		left := streams - 160
		for left > 0 {
			got := f.claimAs(0, 50, time.Hour)
			f.Positive(got[0]+got[1], "%d streams are left", left)
			left -= got[0] + got[1]
		}
	})
}

// A shares is the share of the last claim that was sent on a pool, as JSON.
type shares struct {
	mu   sync.Mutex
	last string
}

func (s *shares) before(_ context.Context, statement faults.Statement) error {
	for _, arg := range statement.Args {
		if text, _ := arg.(string); strings.Contains(text, `"give_back":`) {
			_, share, _ := strings.Cut(text, `"share":`)
			s.mu.Lock()
			s.last = share
			s.mu.Unlock()
		}
	}
	return nil
}

func (s *shares) is(want string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.HasPrefix(s.last, want) && (want != "" || s.last == "")
}

// Workers that live claim by equal shares, in the order of their numbers; one that is alone, or that is told to prefer nothing, has
// none.
func TestWorkersHaveSharesOfTheStreams(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		worker := func(name string, affinity time.Duration) (*outbox.Subscriber, *shares) {
			var s shares
			sub, _ := f.workOn(faults.Open(t, f.DB, faults.Hooks{Before: s.before}), name, func(c *outbox.SubscriberConfig) { c.StreamAffinity = affinity })
			return sub, &s
		}
		_, a := worker("a", 0)
		f.eventually(func() bool { return f.worker("a").lives }, "the first worker lives")
		b, second := worker("b", time.Minute)
		f.eventually(func() bool { return a.is(`{"low":0,"high":4999,"workers":2,"patience_ms":1000}`) }, "the first half")
		f.eventually(func() bool { return second.is(`{"low":5000,"high":9999,"workers":2,"patience_ms":60000}`) }, "the second half")
		_, none := worker("c", -1)
		f.eventually(func() bool { return a.is(`{"low":0,"high":3332,"workers":3,`) }, "the first third")
		f.eventually(func() bool { return second.is(`{"low":3333,"high":6665,"workers":3,`) }, "the second third")
		f.True(none.is(""), "no preference")
		f.NoError(b.Close())
		f.eventually(func() bool { return a.is(`{"low":0,"high":4999,"workers":2,`) }, "what the one that has ended had is shared")
	})
}

const holderVariable = "OUTBOX_TEST_STREAM_HOLDER"

// A holderJob is a worker's process that takes streams and never finishes a message.
type holderJob struct{ Backend, Driver, DSN, Schema string }

func (job holderJob) run() (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	sub, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, WorkerName: "killed", LeaseDuration: lease, MaxInFlight: 10,
	}, nil)
	if err != nil {
		return err
	}
	messages, err := sub.Subscribe(context.Background(), "orders")
	if err != nil {
		return err
	}
	go func() {
		for msg := range messages {
			fmt.Fprintln(os.Stdout, streamOf(msg))
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// The streams of a killed worker move to others within a lease and a heartbeat. Those that the others have do not stir.
func TestStreamsOfAKilledWorkerMove(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		const streams, killed = 30, 10
		f.ordered(streams, 1)
		lines := make(chan testprocess.Line, streams)
		process := testprocess.Start(t, holderVariable, holderJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.DB.Schema}, lines)
		moves := map[string]bool{}
		for len(moves) < killed {
			line := <-lines
			f.NotEmpty(line.Text, "the worker ended: %v", line.From.State())
			moves[line.Text] = true
		}

		deliveries := map[string]int{}
		all := make(chan *message.Message)
		for _, name := range []string{"a", "b"} {
			_, messages := f.work(name, func(c *outbox.SubscriberConfig) { c.MaxInFlight = streams })
			go func() {
				for msg := range messages {
					all <- msg
				}
			}()
		}
		var held []*message.Message
		for len(held) < streams-killed {
			msg := f.receive(all)
			held = append(held, msg)
			deliveries[streamOf(msg)]++
			f.False(moves[streamOf(msg)], "stream %s has a worker that lives", streamOf(msg))
		}

		f.NoError(process.Kill())
		dead := time.Now()
		for range killed {
			msg := f.receive(all)
			held = append(held, msg)
			deliveries[streamOf(msg)]++
			f.True(moves[streamOf(msg)], "stream %s stirs", streamOf(msg))
		}
		took := time.Since(dead)
		t.Logf("%d streams moved within %v; lease %v, heartbeat %v", killed, took.Round(time.Millisecond), lease, heartbeat)
		f.Less(took, lease+heartbeat+testoutbox.Patience/2, "half a minute is for a busy machine")
		f.False(f.worker("killed").lives)
		for _, msg := range held {
			msg.Ack()
		}
		f.Becomes(outbox.Done, streams)
		f.Len(deliveries, streams)
		for stream, n := range deliveries {
			f.Equal(1, n, "deliveries of stream %s to workers that live", stream)
		}
	})
}
