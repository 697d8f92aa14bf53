package streams_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// What may happen to the only message of a stream while it is out. What arrives meanwhile comes after it.
func TestTrap_TheOnlyMessageOfAStream(t *testing.T) {
	settle := func(outcome outbox.Outcome) func(*fixture, outbox.Claimed) {
		return func(f *fixture, held outbox.Claimed) { f.Settle(suite.Settled(outcome, held)...) }
	}
	expire := func(f *fixture) {
		f.Exec("UPDATE {outbox_lease} SET {locked_until} = {past}")
		_, err := f.Outbox.ReapExpired(f.Context())
		f.NoError(err)
		f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {past} WHERE {status} = 5")
		f.Exec("UPDATE {outbox_stream} SET {next_attempt_at} = {past} WHERE {status} = 0")
	}
	ends := map[string]struct {
		end     func(f *fixture, held outbox.Claimed)
		comes   []string // after that
		blocked int
	}{
		"ack":     {settle(outbox.Ack), []string{"1"}, 0},
		"retry":   {func(f *fixture, held outbox.Claimed) { f.Settle(suite.Retried(held)) }, []string{"0", "1"}, 0},
		"release": {settle(outbox.Release), []string{"0", "1"}, 0},
		"fail":    {settle(outbox.Fail), nil, 1},
		"death":   {func(f *fixture, _ outbox.Claimed) { expire(f) }, []string{"0", "1"}, 0},
		"deleted by hand": {func(f *fixture, held outbox.Claimed) {
			f.Remove("{seq} = %d", held.Receipt.Seq)
			expire(f)
		}, []string{"1"}, 0},
	}
	forEach(t, func(_ *testing.T, f *fixture) {
		for name, c := range ends {
			for when, arrives := range map[string]int{"more is routed before": 0, "more arrives before": 1, "more arrives after": 2} {
				topic := name + ", " + when
				more := func(now int) {
					if now == arrives {
						f.Enqueue(outbox.Message{Topic: topic, StreamKey: "a", UUID: "1"})
					}
				}
				f.Enqueue(outbox.Message{Topic: topic, StreamKey: "a", UUID: "0"})
				held := f.Claim(topic)
				f.Equal([]string{"0"}, suite.UUIDs(held), topic)
				more(0)
				f.Empty(f.Claim(topic), topic)
				more(1)
				c.end(f, held[0])
				more(2)
				last := f.Claim(topic)
				f.Eventually(func() bool { // a head that is gone is noticed by one claim, and what is behind it taken by a later one
					last = append(last, f.Claim(topic)...)
					return len(last) == len(c.comes)
				}, suite.Patience, suite.Tick, topic)
				f.Equal(c.comes, suite.UUIDs(last), topic)
				blocked, err := f.Outbox.BlockedStreams(f.Context(), outbox.ListParams{Topic: topic})
				f.NoError(err)
				f.Len(blocked, c.blocked, topic)
				f.Settle(suite.Settled(outbox.Ack, last...)...) // before the next one's leases expire
			}
		}
	})
}

// A transaction of its handler has failed the only message for good: purging does not take it before its stream is blocked.
func TestTrap_TheOnlyMessageIsPurgedNoEarlier(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "a", UUID: "0"})
		held := f.Claim("orders")[0]
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.Outbox.Settle(ctx, tx, suite.Settled(outbox.Fail, held))
			return err
		}))
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past}")
		n, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{Failed: true, OlderThan: time.Minute})
		f.NoError(err)
		f.Zero(n)
		f.Len(f.Settle(suite.Settled(outbox.Fail, held)...), 1, "as a Subscriber does after the nack")
		blocked, err := f.Outbox.BlockedStreams(f.Context(), outbox.ListParams{Topic: "orders"})
		f.NoError(err)
		f.Len(blocked, 1)
	})
}

// The only message of a stream is shown in it while it is out.
func TestStream_TheOnlyMessageHasAPlace(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		id := f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "a", UUID: "0"})[0]
		f.Len(f.Claim("orders"), 1)
		a, err := admin.New(f.Outbox)
		f.NoError(err)
		story, err := a.Story(f.Context(), id)
		f.NoError(err)
		f.Equal(&admin.StreamPlace{StreamKey: "a", State: admin.StreamLeased}, story.Stream)
	})
}

// A claim has room for some of the streams that have just arrived only: the others are there for the next.
func TestTrap_TheOnlyMessagesThatDoNotFit(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		for i := range 5 {
			f.Enqueue(outbox.Message{Topic: "orders", StreamKey: fmt.Sprint(i), UUID: fmt.Sprint(i), Payload: make([]byte, 1000)})
		}
		var seen []string
		for range 5 {
			claimed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 5, Bytes: 1500})
			f.Len(claimed, 1)
			seen = append(seen, claimed[0].UUID)
			f.Settle(suite.Settled(outbox.Ack, claimed...)...)
		}
		f.ElementsMatch([]string{"0", "1", "2", "3", "4"}, seen)
	})
}

// A queue without a stream, which a transaction of another isolation level can leave, is found by the next message.
func TestTrap_TheOnlyMessageThatArrivesAtAnOldQueue(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "a", UUID: "0"})
		f.Settle(suite.Settled(outbox.Release, f.Claim("orders")...)...)
		f.Exec("DELETE FROM {outbox_stream}")
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "a", UUID: "1"})
		f.Equal([]string{"0", "1"}, suite.UUIDs(f.Claim("orders")))
	})
}

// Streams have one message or two, because publishers, routers and those that settle are all at work: no order is lost.
func TestTrap_TheOnlyMessageAndTheNextMeet(t *testing.T) {
	const streams, each, workers = 8, 40, 4
	forEach(t, func(_ *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		var work sync.WaitGroup
		var mu sync.Mutex
		next := map[string]int{}
		var wrong []string
		problem := func(err error) {
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong = append(wrong, err.Error())
			}
		}
		left := streams * each
		for range workers {
			work.Go(func() {
				for {
					claimed, err := f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 3, Lease: time.Minute})
					problem(err)
					mu.Lock()
					for _, c := range claimed {
						if c.UUID != fmt.Sprint(next[c.StreamKey]) {
							wrong = append(wrong, fmt.Sprintf("stream %s: %s after %d", c.StreamKey, c.UUID, next[c.StreamKey]-1))
						}
						next[c.StreamKey]++
					}
					left -= len(claimed)
					over := left <= 0 || len(wrong) > 0
					mu.Unlock()
					refused, err := f.Outbox.Settle(f.Context(), f.DB.DB, suite.Settled(outbox.Ack, claimed...))
					problem(err)
					if len(refused) > 0 {
						problem(errors.New("an ack was refused"))
					}
					if over {
						return
					}
				}
			})
		}
		for n := range each {
			for s := range streams {
				_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders", StreamKey: fmt.Sprint(s), UUID: fmt.Sprint(n)})
				problem(err)
			}
		}
		work.Wait()
		f.Empty(wrong)
		f.Zero(f.Number("SELECT COUNT(*) FROM {outbox_stream}"))
	})
}
