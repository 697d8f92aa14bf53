package admin_test

import (
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
)

func (f *fixture) audit() (lines []string) {
	f.T.Helper()
	entries, err := f.admin.Audit(f.T.Context(), admin.AuditParams{})
	f.NoError(err)
	for _, e := range entries {
		f.False(e.At.IsZero())
		lines = append(lines, fmt.Sprintf("%s: %s %s (%d)", e.By, e.Act, e.Selection, e.Affected))
	}
	return lines
}

func (f *fixture) record(id outbox.MessageID) outbox.Record {
	f.T.Helper()
	records, err := f.Get(f.T.Context(), id)
	f.NoError(err)
	f.Len(records, 1)
	return records[0]
}

func (f *fixture) joins() *join.Coordinator {
	f.T.Helper()
	joins, err := join.NewCoordinator(f.DB.DB, join.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
	f.NoError(err)
	return joins
}

// Ready messages that match are cancelled; what a worker has, and what has ended, is left alone.
func TestCancel(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.publish(outbox.Message{UUID: "held", Topic: "orders"})
		f.Equal([]string{"held"}, f.claim("orders"))
		ids := f.publish(outbox.Message{UUID: "a", Topic: "orders", CorrelationID: "x"}, outbox.Message{UUID: "b", Topic: "orders"}, outbox.Message{UUID: "c", Topic: "mails"})
		params := admin.ActParams{Filter: admin.Filter{Topic: "orders"}, By: "alice", DryRun: true}
		result, err := f.admin.Cancel(ctx, params)
		f.NoError(err)
		f.Equal(admin.Result{Examined: 4, Matched: 2, Until: result.Until}, result)
		f.Equal(3, f.Count(outbox.Ready))
		f.Empty(f.audit(), "a dry run is not recorded")

		params.DryRun = false
		result, err = f.admin.Cancel(ctx, params)
		f.NoError(err)
		f.Equal(2, result.Done)
		f.Equal([]string{`alice: cancel topic 'orders' (2)`}, f.audit())
		r := f.record(ids[0])
		f.Equal(outbox.Failed, r.Status)
		f.Equal("cancelled by alice", r.LastError)
		f.False(r.ProcessedAt.IsZero())
		story, err := f.admin.Story(ctx, ids[0])
		f.NoError(err)
		f.Len(story.Attempts, 1)
		f.Equal(admin.ByOperator, story.Attempts[0].Outcome)
		f.Zero(story.Attempts[0].Number, "nothing was spent")
		f.Empty(f.claim("orders"))

		result, err = f.admin.Cancel(ctx, admin.ActParams{IDs: ids})
		f.NoError(err)
		f.Equal(admin.Result{Examined: 3, Matched: 1, Done: 1, Until: result.Until}, result)

		_, err = f.admin.Requeue(ctx, admin.ActParams{IDs: ids[:1]})
		f.NoError(err)
		f.Equal([]string{"a"}, f.claim("orders"), "a cancelled message is a dead letter like others")
	})
}

// A join counts a cancelled step as failed, once, and what waits for the join goes on.
func TestCancelCountsInJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx, joins := t.Context(), f.joins()
		group, err := joins.Start(ctx, nil, join.StartParams{ExpectedSteps: 2})
		f.NoError(err)
		steps, err := joins.Enqueue(ctx, nil, group, outbox.Message{UUID: "step", Topic: "orders"})
		f.NoError(err)
		_, err = joins.Enqueue(ctx, nil, group, outbox.Message{UUID: "other", Topic: "mails"})
		f.NoError(err)
		_, err = f.admin.Cancel(ctx, admin.ActParams{IDs: steps})
		f.NoError(err)
		info, err := joins.Get(ctx, nil, group)
		f.NoError(err)
		f.Equal(1, info.FailedSteps)
		f.Equal(join.Pending, info.Status)

		_, err = f.admin.Cancel(ctx, admin.ActParams{All: true})
		f.NoError(err)
		info, err = joins.Get(ctx, nil, group)
		f.NoError(err)
		f.Equal(2, info.FailedSteps)
		f.Equal(join.Failed, info.Status)
	})
}

// A stream goes on without its cancelled messages, wherever they are in it.
func TestCancelInStreams(t *testing.T) {
	for _, routed := range []bool{false, true} {
		t.Run(fmt.Sprintf("routed=%v", routed), func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				ctx := t.Context()
				var ids []outbox.MessageID
				for i := range 7 {
					ids = append(ids, f.publish(outbox.Message{UUID: fmt.Sprint(i), Topic: "orders", StreamKey: "s"})...)
				}
				var first []outbox.Claimed
				if routed {
					var err error
					first, err = f.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}, Run: 1, Lease: time.Minute})
					f.NoError(err)
					f.Len(first, 1)
				}
				result, err := f.admin.Cancel(ctx, admin.ActParams{IDs: []outbox.MessageID{ids[0], ids[2], ids[3], ids[5]}})
				f.NoError(err)
				want := []string{"1", "4", "6"}
				if routed {
					f.Equal(3, result.Done)
					_, err = f.Settle(ctx, f.DB.DB, []outbox.Settlement{{Receipt: first[0].Receipt, Outcome: outbox.Ack}})
					f.NoError(err)
				} else {
					f.Equal(4, result.Done)
				}
				f.Equal(want, f.claim("orders"))
				blocked, err := f.BlockedStreams(ctx, outbox.ListParams{})
				f.NoError(err)
				f.Empty(blocked)
			})
		})
	}
}

// On SQL Server a cancel leaves an arrival that a router has locked to that. A requeue before the next routing adds no other.
func TestTrap_ACancelledMessageIsRequeuedBeforeItIsRouted(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		ids := f.publish(outbox.Message{UUID: "a", Topic: "orders", StreamKey: "s"}, outbox.Message{UUID: "b", Topic: "orders", StreamKey: "s"})
		_, err := f.admin.Cancel(ctx, admin.ActParams{IDs: ids[:1]})
		f.NoError(err)
		if f.DB.Name == testdb.SQLServer {
			f.Exec("INSERT INTO {outbox_arrival} ({seq}, {stream_id}, {topic_key}) SELECT {seq}, {stream_id}, {topic_key} FROM {outbox_state} WHERE {status} = 3")
		}
		result, err := f.admin.Requeue(ctx, admin.ActParams{IDs: ids[:1]})
		f.NoError(err)
		f.Equal(1, result.Done)
		f.ElementsMatch([]string{"a", "b"}, f.claim("orders"))
	})
}

func TestDelay(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		ids := f.publish(outbox.Message{UUID: "a", Topic: "orders"}, outbox.Message{UUID: "b", Topic: "orders"},
			outbox.Message{UUID: "c", Topic: "orders", StreamKey: "s"}, outbox.Message{UUID: "d", Topic: "orders", StreamKey: "s"})
		result, err := f.admin.Delay(ctx, admin.DelayParams{ActParams: admin.ActParams{IDs: []outbox.MessageID{ids[0], ids[2]}, By: "alice"}, Delay: time.Hour})
		f.NoError(err)
		f.Equal(2, result.Done)
		f.Equal([]string{"b"}, f.claim("orders"), "d waits behind c")
		f.Equal([]string{fmt.Sprintf("alice: delay by 1h0m0s %s, %s (2)", ids[0], ids[2])}, f.audit())
		f.InDelta(time.Hour, f.record(ids[0]).NextAttemptAt.Sub(f.record(ids[0]).CreatedAt), float64(time.Minute))

		result, err = f.admin.Delay(ctx, admin.DelayParams{ActParams: admin.ActParams{All: true}, DueAt: time.Unix(0, 0)})
		f.NoError(err)
		f.Equal(3, result.Done)
		f.ElementsMatch([]string{"a", "c", "d"}, f.claim("orders"))

		var bad *outbox.FieldError
		_, err = f.admin.Delay(ctx, admin.DelayParams{ActParams: admin.ActParams{All: true}})
		f.ErrorAs(err, &bad)
		f.Equal("DelayParams.Delay", bad.Field)
	})
}

// What was published after a call began is left alone by the call that continues it.
func TestCancelAndDelaySayWhenTheyBegan(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		old := f.publish(outbox.Message{UUID: "old", Topic: "orders"})
		f.passes()
		for _, act := range []func(admin.ActParams) (admin.Result, error){
			func(p admin.ActParams) (admin.Result, error) {
				return f.admin.Delay(ctx, admin.DelayParams{ActParams: p, Delay: time.Hour})
			},
			func(p admin.ActParams) (admin.Result, error) { return f.admin.Cancel(ctx, p) },
		} {
			named, err := act(admin.ActParams{IDs: old, DryRun: true})
			f.NoError(err)
			f.WithinDuration(f.record(old[0]).CreatedAt, named.Until, time.Minute)

			first, err := act(admin.ActParams{All: true, DryRun: true})
			f.NoError(err)
			f.Equal(1, first.Matched)
			f.False(first.Until.Before(named.Until))
			f.passes()
			since := f.publish(outbox.Message{UUID: "new", Topic: "orders"})
			again, err := act(admin.ActParams{Filter: admin.Filter{Until: first.Until}})
			f.NoError(err)
			f.Equal(1, again.Done)
			_, err = f.admin.Cancel(ctx, admin.ActParams{IDs: since})
			f.NoError(err)
		}
	})
}

// The copy is handled, the dead letter is not requeued too, and a join counts what it has counted.
func TestEdit(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx, joins := t.Context(), f.joins()
		group, err := joins.Start(ctx, nil, join.StartParams{ExpectedSteps: 2})
		f.NoError(err)
		steps, err := joins.Enqueue(ctx, nil, group, outbox.Message{UUID: "u", Topic: "orders", CorrelationID: "c", StreamKey: "s",
			Payload: []byte("bad"), Headers: map[string]string{"k": "v", join.HeaderStepOf: group.String()}})
		f.NoError(err)
		old := steps[0]
		f.publish(outbox.Message{UUID: "next", Topic: "orders", StreamKey: "s"})
		_, err = f.admin.Edit(ctx, admin.EditParams{ID: old})
		f.ErrorIs(err, admin.ErrNotFailed)
		f.Len(f.fail("orders", "cannot read it", 1), 1)

		_, err = f.admin.Edit(ctx, admin.EditParams{ID: old, Headers: map[string]string{join.HeaderStepOf: group.String()}})
		f.ErrorContains(err, "EditParams.Headers[outbox_join_step_of]: is set, but the copy is no step of a join")
		id, err := f.admin.Edit(ctx, admin.EditParams{ID: old, Payload: []byte("good"), By: "alice"})
		f.NoError(err)
		r := f.record(old)
		f.Equal(outbox.Done, r.Status)
		f.Equal(fmt.Sprintf("edited by alice, and enqueued again as %s", id), r.LastError)
		f.Equal("bad", string(r.Payload))
		r = f.record(id)
		f.Equal(outbox.Ready, r.Status)
		f.Equal("u good c s", r.UUID+" "+string(r.Payload)+" "+r.CorrelationID+" "+r.StreamKey)
		f.Equal(map[string]string{"k": "v"}, r.Headers)
		f.Equal([]string{fmt.Sprintf("alice: edit %s, now %s (1)", old, id)}, f.audit())
		f.Equal([]string{"next", "u"}, f.claim("orders"), "the stream goes on, and the copy comes last")

		info, err := joins.Get(ctx, nil, group)
		f.NoError(err)
		f.Equal("0 1", fmt.Sprint(info.CompletedSteps, info.FailedSteps), "the dead letter was counted when it failed, and the copy is no step")
		result, err := f.admin.Requeue(ctx, admin.ActParams{All: true})
		f.NoError(err)
		f.Zero(result.Done)
		_, err = f.admin.Edit(ctx, admin.EditParams{ID: old})
		f.ErrorIs(err, admin.ErrNotFailed)
	})
}

// Of two operators who edit the same dead letter, one does.
func TestEditOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders"})
		old := f.fail("orders", "broken", 1)[0]
		ended := make(chan error)
		for range 2 {
			go func() {
				_, err := f.admin.Edit(t.Context(), admin.EditParams{ID: old})
				ended <- err
			}()
		}
		one, other := <-ended, <-ended
		if one != nil {
			one, other = other, one
		}
		f.NoError(one)
		f.ErrorIs(other, admin.ErrNotFailed)
		f.Equal(1, f.Count(outbox.Ready))
		f.Len(f.audit(), 1)
	})
}

// An act in batches is one entry, and pages of the record follow each other.
func TestAudit(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.Enqueue("orders", 0, 2100)
		f.fail("orders", "broken", 0)
		f.passes()
		_, err := f.admin.Requeue(ctx, admin.ActParams{Filter: admin.Filter{Error: "broken"}, By: "alice"})
		f.NoError(err)
		_, err = f.admin.Cancel(ctx, admin.ActParams{Filter: admin.Filter{Topic: "orders"}, By: "bob"})
		f.NoError(err)
		f.passes()
		_, err = f.admin.Discard(ctx, admin.ActParams{All: true, By: "carol"})
		f.NoError(err)
		f.Equal([]string{"carol: discard all (2100)", `bob: cancel topic 'orders' (2100)`, `alice: requeue error has 'broken' (2100)`}, f.audit())

		page, err := f.admin.Audit(ctx, admin.AuditParams{Limit: 2})
		f.NoError(err)
		f.Len(page, 2)
		rest, err := f.admin.Audit(ctx, admin.AuditParams{Before: page[1].No})
		f.NoError(err)
		f.Len(rest, 1)
		f.Equal("alice", rest[0].By)
		var bad *outbox.FieldError
		_, err = f.admin.Audit(ctx, admin.AuditParams{Limit: 1001})
		f.ErrorAs(err, &bad)

		purged, err := f.PurgeOnce(ctx, outbox.JanitorConfig{Audit: time.Hour})
		f.NoError(err)
		f.Zero(purged["audit"])
		f.passes()
		purged, err = f.PurgeOnce(ctx, outbox.JanitorConfig{Audit: time.Millisecond})
		f.NoError(err)
		f.Equal(3, purged["audit"])
	})
}

// What cannot be committed is not recorded, and what cannot be recorded is not done.
func TestAuditIsPartOfTheAct(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders"})
		f.Exec("DROP TABLE %s", f.Table(testdb.Part(f.DB.Name, testoutbox.Dialect(f.DB.Name).Traits().Table, "audit")))
		_, err := f.admin.Cancel(t.Context(), admin.ActParams{All: true})
		f.Error(err)
		f.Equal(1, f.Count(outbox.Ready))
	})
}

func TestWorkers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 3)
		f.Len(f.claim("orders"), 3)
		config := f.Subscriber()
		config.WorkerName = "subscriber"
		sub, err := outbox.NewSubscriber(f.DB.DB, config, nil)
		f.NoError(err)
		_, err = sub.Subscribe(t.Context(), "others")
		f.NoError(err)
		var workers []admin.Worker
		f.Eventually(func() bool {
			workers, err = f.admin.Workers(t.Context())
			return err != nil || len(workers) == 2
		}, testoutbox.Patience, 5*time.Millisecond)
		f.NoError(err)
		alive, held := workers[0], workers[1]
		f.True(alive.Alive)
		f.False(alive.SeenAt.IsZero())
		f.True(alive.StoppedAt.IsZero())
		f.Zero(alive.Messages)
		f.False(held.Alive, "it is no Subscriber")
		f.True(held.SeenAt.IsZero())
		f.Equal(1, held.Leases)
		f.Equal(3, held.Messages)
		f.NoError(sub.Close())
		workers, err = f.admin.Workers(t.Context())
		f.NoError(err)
		f.Len(workers, 2)
		for _, w := range workers {
			f.False(w.Alive)
			f.Equal(w.Name == alive.Name, !w.StoppedAt.IsZero())
		}
	})
}
