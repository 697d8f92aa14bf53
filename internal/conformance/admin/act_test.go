package admin_test

import (
	"context"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
)

// A call that is stopped in the middle, and one that continues it, requeue each message once, whatever fails again meanwhile.
func TestRequeueStoppedAndContinued(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 2500)
		f.Enqueue("orders", 10_000, 12)
		f.fail("orders", "no such customer", 2500)
		f.fail("orders", "refused", 0)
		f.passes()

		filter := admin.Filter{Error: "such"}
		counted, err := f.admin.Requeue(t.Context(), admin.ActParams{Filter: filter, DryRun: true})
		f.NoError(err)
		f.Equal(2500, counted.Matched)
		f.Equal(2512, counted.Examined)
		f.Zero(counted.Done)
		f.Equal(2512, f.Count(outbox.Failed), "a dry run changes nothing")

		ctx, stop := context.WithCancel(t.Context())
		first, err := f.admin.Requeue(ctx, admin.ActParams{Filter: filter, Progress: func(r admin.Result) {
			f.Equal(1000, r.Done)
			stop()
		}})
		f.ErrorIs(err, context.Canceled)
		f.Equal(1000, first.Done)

		f.passes()
		again := f.fail("orders", "no such customer, once more", 0)
		f.Len(again, 1000, "each of them was requeued, once")

		filter.Until = first.Until
		rest, err := f.admin.Requeue(t.Context(), admin.ActParams{Filter: filter})
		f.NoError(err)
		f.Equal(1500, rest.Done)
		seen := map[outbox.MessageID]bool{}
		for _, id := range append(again, f.fail("orders", "third", 0)...) {
			f.False(seen[id], "%s was requeued twice", id)
			seen[id] = true
		}
		f.Len(seen, 2500)
	})
}

func TestRequeueByID(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 5)
		ids := f.fail("orders", "broken", 3)
		f.passes()
		unknown, err := f.NewID()
		f.NoError(err)
		result, err := f.admin.Requeue(t.Context(), admin.ActParams{IDs: append(ids[:2], unknown), DryRun: true})
		f.NoError(err)
		f.Equal(2, result.Matched)
		result, err = f.admin.Requeue(t.Context(), admin.ActParams{IDs: append(ids[:2], unknown)})
		f.NoError(err)
		f.Equal(2, result.Done)
		f.Equal(1, f.Count(outbox.Failed))
		result, err = f.admin.Requeue(t.Context(), admin.ActParams{IDs: []outbox.MessageID{}})
		f.NoError(err)
		f.Zero(result.Done, "an empty list is none")
	})
}

// What somebody still needs stays.
func TestDiscardKeepsWhatIsNeeded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		joins, err := join.NewCoordinator(f.DB.DB, join.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
		f.NoError(err)
		group, err := joins.Start(ctx, nil, join.StartParams{ExpectedSteps: 2})
		f.NoError(err)
		_, err = joins.Enqueue(ctx, nil, group, outbox.Message{UUID: "step", Topic: "orders"})
		f.NoError(err)
		_, err = f.Outbox.Outbox.Enqueue(ctx, f.DB.DB, outbox.Message{UUID: "head", Topic: "orders", StreamKey: "s"})
		f.NoError(err)
		f.Enqueue("orders", 0, 3)
		f.fail("orders", "broken", 0)
		f.passes()

		result, err := f.admin.Discard(ctx, admin.ActParams{Filter: admin.Filter{Topic: "orders"}, DryRun: true})
		f.NoError(err)
		f.Equal(5, result.Matched)
		result, err = f.admin.Discard(ctx, admin.ActParams{Filter: admin.Filter{Topic: "orders"}})
		f.NoError(err)
		f.Equal(5, result.Matched)
		f.Equal(3, result.Done, "a pending join needs its step, and a blocked stream its head")
		var left []string
		for _, r := range f.Rows() {
			left = append(left, r.UUID)
		}
		f.ElementsMatch([]string{"step", "head"}, left)

		f.NoError(f.SkipHead(ctx, "orders", "s"))
		result, err = f.admin.Discard(ctx, admin.ActParams{All: true})
		f.NoError(err)
		f.Equal(1, result.Done)
	})
}

// What has failed again since the call began is not what somebody looked at.
func TestDiscardLeavesWhatFailedSince(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 4)
		ids := f.fail("orders", "broken", 0)
		f.passes()
		before, err := f.admin.Requeue(t.Context(), admin.ActParams{All: true, DryRun: true})
		f.NoError(err)
		_, err = f.admin.Requeue(t.Context(), admin.ActParams{IDs: ids[:1]})
		f.NoError(err)
		f.passes()
		f.fail("orders", "for another reason", 0)
		result, err := f.admin.Discard(t.Context(), admin.ActParams{IDs: ids, Filter: admin.Filter{Until: before.Until}})
		f.NoError(err)
		f.Equal(3, result.Done)
		records, err := f.Get(t.Context(), ids...)
		f.NoError(err)
		f.Len(records, 1)
		f.Equal("for another reason", records[0].LastError)
	})
}

func TestStory(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		joins, err := join.NewCoordinator(f.DB.DB, join.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
		f.NoError(err)
		both, err := outbox.New(f.DB.DB, outbox.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema, Log: outbox.QueueAndLog}, nil)
		f.NoError(err)
		group, err := joins.Start(ctx, nil, join.StartParams{ExpectedSteps: 1, GroupingKey: "tenant"})
		f.NoError(err)
		ids, err := both.Enqueue(ctx, f.DB.DB, outbox.Message{UUID: "a", Topic: "orders", StreamKey: "s"}, outbox.Message{UUID: "b", Topic: "orders", StreamKey: "s"})
		f.NoError(err)
		f.NoError(joins.Attach(ctx, nil, group, ids[0]))

		claimed, err := f.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}, Run: 1, Lease: time.Minute})
		f.NoError(err)
		f.Len(claimed, 1)
		_, err = f.Settle(ctx, f.DB.DB, []outbox.Settlement{{Receipt: claimed[0].Receipt, Outcome: outbox.Retry, Delay: -1, Err: errStory}})
		f.NoError(err)
		f.fail("orders", "no more", 1)

		story, err := f.admin.Story(ctx, ids[0])
		f.NoError(err)
		f.Equal("a", story.Record.UUID)
		f.Equal(outbox.Failed, story.Record.Status)
		f.Len(story.Attempts, 2)
		f.Equal(admin.Retried, story.Attempts[0].Outcome)
		f.Equal("first", story.Attempts[0].Error)
		f.NotEmpty(story.Attempts[0].Worker)
		f.Equal(admin.GaveUp, story.Attempts[1].Outcome)
		f.Equal(&admin.LogPlace{}, story.Log)
		f.Equal(&admin.StreamPlace{StreamKey: "s", State: admin.StreamBlocked}, story.Stream)
		f.Len(story.Joins, 1)
		f.Equal(group, story.Joins[0].Join)
		f.Equal("tenant", story.Joins[0].GroupingKey)
		f.Equal("failed failed", story.Joins[0].StepStatus.String()+" "+story.Joins[0].Status.String())

		story, err = f.admin.Story(ctx, ids[1])
		f.NoError(err)
		f.Equal(1, story.Stream.Ahead)
		f.Empty(story.Attempts)
		f.Empty(story.Joins)

		unknown, err := f.NewID()
		f.NoError(err)
		_, err = f.admin.Story(ctx, unknown)
		f.ErrorIs(err, admin.ErrNotFound)
	})
}
