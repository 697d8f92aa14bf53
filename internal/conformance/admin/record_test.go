package admin_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
)

// block publishes messages into a stream whose first one fails for good.
func (f *fixture) block(n int) {
	f.T.Helper()
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{UUID: fmt.Sprint(i), Topic: "orders", StreamKey: "s"}
	}
	f.publish(messages...)
	claimed, err := f.Claim(f.T.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}, Run: 1, Lease: time.Minute})
	f.NoError(err)
	f.Len(claimed, 1)
	_, err = f.Settle(f.T.Context(), f.DB.DB, []outbox.Settlement{{Receipt: claimed[0].Receipt, Outcome: outbox.Fail, Err: errors.New("broken")}})
	f.NoError(err)
	f.Empty(f.claim("orders"))
}

func TestActsOnStreamsAreRecorded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		s := admin.StreamParams{Topic: "orders", StreamKey: "s", By: "alice"}
		f.ErrorIs(f.admin.SkipHead(ctx, s), outbox.ErrNotBlocked)
		_, err := f.admin.DiscardStream(ctx, s)
		f.ErrorIs(err, outbox.ErrNotBlocked)
		f.Empty(f.audit(), "nothing was done")

		f.block(2)
		f.NoError(f.admin.RequeueStream(ctx, s))
		f.fail("orders", "again", 1)
		f.NoError(f.admin.SkipHead(ctx, s))
		f.Equal([]string{"1"}, f.claim("orders"))
		f.Equal([]string{
			"alice: skip head topic 'orders', stream 's' (1)", "alice: requeue stream topic 'orders', stream 's' (1)",
		}, f.audit())
	})
}

// A stream of several batches is one entry, which counts what waited and the message that blocked it.
func TestADiscardedStreamIsOneEntry(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const waiting = 1100
		f.block(waiting + 1)
		n, err := f.admin.DiscardStream(t.Context(), admin.StreamParams{Topic: "orders", StreamKey: "s", By: "bob"})
		f.NoError(err)
		f.Equal(waiting, n)
		f.Equal(waiting+1, f.Count(outbox.Failed))
		f.Equal([]string{fmt.Sprintf("bob: discard stream topic 'orders', stream 's' (%d)", waiting+1)}, f.audit())
	})
}

func TestActsOnJoinsAreRecorded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx, joins := t.Context(), f.joins()
		open, err := joins.Start(ctx, nil, join.StartParams{Open: true})
		f.NoError(err)
		closed, err := joins.Start(ctx, nil, join.StartParams{ExpectedSteps: 2})
		f.NoError(err)
		f.NoError(f.admin.SealJoin(ctx, admin.JoinParams{ID: open, By: "alice"}))
		f.NoError(f.admin.CancelJoin(ctx, admin.JoinParams{ID: closed, By: "bob"}))
		f.ErrorIs(f.admin.CancelJoin(ctx, admin.JoinParams{ID: closed}), join.ErrEnded)
		nobody, err := f.NewID()
		f.NoError(err)
		f.ErrorIs(f.admin.SealJoin(ctx, admin.JoinParams{ID: join.ID(nobody)}), join.ErrNotFound)
		var bad *outbox.FieldError
		f.ErrorAs(f.admin.SealJoin(ctx, admin.JoinParams{}), &bad)
		f.Equal("JoinParams.ID", bad.Field)

		known, err := joins.Get(ctx, nil, closed)
		f.NoError(err)
		f.Equal(join.Cancelled, known.Status)
		want := []string{fmt.Sprintf("bob: cancel join %s (1)", closed), fmt.Sprintf("alice: seal join %s (1)", open)}
		f.Equal(want, f.audit())

		n, err := f.admin.PurgeJoins(ctx, admin.PurgeJoinsParams{OlderThan: time.Hour, By: "carol"})
		f.NoError(err)
		f.Zero(n)
		f.Equal(want, f.audit(), "nothing was done")
		f.passes()
		n, err = f.admin.PurgeJoins(ctx, admin.PurgeJoinsParams{By: "carol"})
		f.NoError(err)
		f.Equal(2, n)
		f.Equal(append([]string{"carol: purge joins ended joins (2)"}, want...), f.audit())
	})
}

func TestPurgingAndForgettingAreRecorded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		config := f.Subscriber()
		config.ConsumerGroup = "mail"
		s, err := outbox.NewSubscriber(f.DB.DB, config, nil)
		f.NoError(err)
		f.NoError(s.SubscribeInitialize("orders"))
		f.NoError(s.Close())
		f.NoError(f.admin.ForgetGroup(ctx, admin.ForgetGroupParams{Group: "mail", By: "alice"}))
		err = f.admin.ForgetGroup(ctx, admin.ForgetGroupParams{Group: "mail", By: "bob"})
		f.ErrorIs(err, admin.ErrNotFound)
		f.ErrorContains(err, `there is no consumer group "mail"`)
		groups, err := f.admin.LogGroups(ctx)
		f.NoError(err)
		f.Empty(groups)

		f.Enqueue("orders", 0, 2100)
		f.fail("orders", "broken", 0)
		f.passes()
		n, err := f.admin.Purge(ctx, admin.PurgeParams{PurgeParams: outbox.PurgeParams{Failed: true}, By: "bob"})
		f.NoError(err)
		f.Equal(2100, n)
		f.Equal([]string{"bob: purge dead letters (2100)", "alice: forget group group 'mail' (1)"}, f.audit())
	})
}

// What cannot be recorded is not done.
func TestARecordIsPartOfTheAct(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.block(3)
		id, err := f.joins().Start(ctx, nil, join.StartParams{ExpectedSteps: 2})
		f.NoError(err)
		f.Exec("DROP TABLE %s", f.Table(testdb.Part(f.DB.Name, testoutbox.Dialect(f.DB.Name).Traits().Table, "audit")))

		s := admin.StreamParams{Topic: "orders", StreamKey: "s"}
		f.Error(f.admin.RequeueStream(ctx, s))
		f.Error(f.admin.SkipHead(ctx, s))
		_, err = f.admin.DiscardStream(ctx, s)
		f.Error(err)
		f.Equal(1, f.Count(outbox.Failed))
		blocked, err := f.BlockedStreams(ctx, outbox.ListParams{})
		f.NoError(err)
		f.Len(blocked, 1)

		f.Error(f.admin.CancelJoin(ctx, admin.JoinParams{ID: id}))
		known, err := f.joins().Get(ctx, nil, id)
		f.NoError(err)
		f.Equal(join.Pending, known.Status)
	})
}
