package join_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// A wait that is locked when its join ends is noted, and any claim makes it due.

// lockReady locks the ready messages that a condition describes until the transaction ends.
func (f *fixture) lockReady(condition string, args ...any) *sql.Tx {
	f.T.Helper()
	tx, err := f.DB.BeginTx(f.Context(), nil)
	f.NoError(err)
	f.T.Cleanup(func() { _ = tx.Rollback() }) // for a failure before it ends
	f.ExecOn(tx, "UPDATE {outbox_state} SET {status} = {status} WHERE {status} = 0 AND {seq} IN (SELECT {seq} FROM {outbox} WHERE %s)", f.SQL(condition, args...))
	return tx
}

// The worker of the waits was woken when the join ended, and could do nothing then. Another makes the wait due, and wakes nobody.
func TestTrap_AWaitThatAnotherMakesDueIsFoundByTheNextPoll(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, suite.SkipLocked, separateProcedures)
		claims := make(chan struct{}, 1)
		pool := faults.Open(f.T, f.DB, faults.Hooks{After: func(_ context.Context, s faults.Statement, _ error) {
			if text := strings.ToLower(s.Text); strings.Contains(text, "_claim") || strings.Contains(text, "_work") {
				select {
				case claims <- struct{}{}:
				default:
				}
			}
		}})
		s := f.SubscriberOn(pool, nil, func(c *outbox.SubscriberConfig) { c.PollInterval, c.MaxPollInterval = time.Second/2, time.Second/2 })
		messages, c := f.Subscribe(s, join.DefaultWaitTopic), f.Joins()
		continues := func(waiter outbox.MessageID) {
			msg := f.Receive(messages)
			f.NoError(c.HandleWait(msg))
			msg.Ack()
			f.Becomes(waiter, outbox.Done)
		}
		id, last := f.lastStep()
		waiter := f.WaitOn(c, nil, id, "next")
		f.Empty(f.Settle(suite.Settled(outbox.Ack, last)...))
		continues(waiter) // and its claims begin at this one from now on

		id, last = f.lastStep()
		waiter = f.WaitOn(c, nil, id, "next")
		tx := f.lockReady("{message_id} = '%s'", waiter)
		f.Empty(f.Settle(suite.Settled(outbox.Ack, last)...))
		for range 2 { // the first may have begun before
			suite.Take(f.T, claims, "a claim of the waits")
		}
		f.False(f.Row(waiter).IsDue)
		f.NoError(tx.Rollback())
		f.Empty(f.Claim("another"))
		f.Zero(f.Number("SELECT COUNT(*) FROM %s", f.Part("wake")))
		continues(waiter)
	})
}

// Notes of messages that stay locked hid all younger ones.
func TestTrap_LockedWaitsHideNoOthers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, suite.SkipLocked, separateProcedures)
		waits := 1000 // so many a claim looks at
		if f.DB.Name == testdb.SQLServer {
			waits = 100
		}
		f.EnqueueN("waits", waits)
		id, last := f.lastStep()
		f.Exec("INSERT INTO {wait} ({join_id}, {step}) SELECT '%s', {message_id} FROM {outbox} WHERE {topic} = 'waits'", id)
		f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {future} WHERE {status} = 0")
		locked := f.lockReady("{topic} = 'waits'")
		f.Empty(f.Settle(suite.Settled(outbox.Ack, last)...))

		id, last = f.lastStep()
		waiter := f.WaitOn(f.Joins(), nil, id, "next")
		tx := f.lockReady("{message_id} = '%s'", waiter)
		f.Empty(f.Settle(suite.Settled(outbox.Ack, last)...))
		f.NoError(tx.Rollback())
		notes := func() int64 { return f.Number("SELECT COUNT(*) FROM %s", f.Part("wake")) }
		f.EqualValues(waits+1, notes())
		for range 500 { // a claim looks at some of them
			f.Empty(f.Claim("another"))
			if f.Row(waiter).IsDue {
				break
			}
		}
		f.True(f.Row(waiter).IsDue, "it is the youngest")

		f.NoError(locked.Rollback())
		for range 500 {
			f.Empty(f.Claim("another"))
			if notes() == 0 {
				break
			}
		}
		f.Zero(notes())
		f.Len(f.ClaimWith(outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "waits"}}, Limit: waits, Lease: time.Minute}), waits)
	})
}
