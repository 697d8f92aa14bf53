package admin_test

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

func (f *fixture) claim(topics ...string) (uuids []string) {
	f.T.Helper()
	params := outbox.ClaimParams{Lease: time.Minute}
	for _, topic := range topics {
		params.Topics = append(params.Topics, outbox.TopicQuota{Topic: topic})
	}
	claimed, err := f.Claim(f.T.Context(), params)
	f.NoError(err)
	for _, c := range claimed {
		uuids = append(uuids, c.UUID)
	}
	return uuids
}

func (f *fixture) publish(messages ...outbox.Message) []outbox.MessageID {
	f.T.Helper()
	ids, err := f.Outbox.Outbox.Enqueue(f.T.Context(), f.DB.DB, messages...)
	f.NoError(err)
	return ids
}

// Nothing of a paused topic is claimed, whether in streams or not, and others are as before.
func TestPause(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.publish(outbox.Message{UUID: "a", Topic: "orders"}, outbox.Message{UUID: "b", Topic: "orders", StreamKey: "s"},
			outbox.Message{UUID: "c", Topic: "mails"}, outbox.Message{UUID: "d", Topic: "mails", StreamKey: "s"})
		f.NoError(f.admin.Pause(ctx, admin.PauseParams{Topic: "orders", By: "alice", Reason: "the bank is down"}))
		f.publish(outbox.Message{UUID: "e", Topic: "orders"})

		f.ElementsMatch([]string{"c", "d"}, f.claim("orders", "mails"))
		f.Empty(f.claim("orders"))

		paused, err := f.admin.Paused(ctx)
		f.NoError(err)
		f.Len(paused, 1)
		f.Equal("orders alice the bank is down", paused[0].Topic+" "+paused[0].By+" "+paused[0].Reason)
		topics, err := f.Topics(ctx)
		f.NoError(err)
		f.Len(topics, 1)
		f.Equal(3, topics[0].Waiting)
		f.Equal(paused[0].Since, topics[0].PausedSince)
		f.Equal("alice: the bank is down", topics[0].PausedBy+": "+topics[0].PauseReason)

		f.passes()
		f.NoError(f.admin.Pause(ctx, admin.PauseParams{Topic: "orders", By: "bob"}))
		again, err := f.admin.Paused(ctx)
		f.NoError(err)
		f.Equal([]admin.PausedTopic{{Topic: "orders", Since: paused[0].Since, By: "bob"}}, again, "who and why change, not since when")

		f.NoError(f.admin.Resume(ctx, admin.ResumeParams{Topic: "orders", By: "bob"}))
		f.ErrorIs(f.admin.Resume(ctx, admin.ResumeParams{Topic: "orders"}), admin.ErrNotPaused)
		f.ElementsMatch([]string{"a", "b", "e"}, f.claim("orders"))
		f.Equal([]string{
			`bob: resume topic 'orders' (1)`, `bob: pause topic 'orders' (1)`, `alice: pause topic 'orders': the bank is down (1)`}, f.audit())
	})
}

// What was claimed before is settled, and given back when its lease expires, but not claimed again.
func TestPauseLeavesWhatIsHeld(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.publish(outbox.Message{UUID: "a", Topic: "orders"}, outbox.Message{UUID: "b", Topic: "orders"})
		held, err := f.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}, Limit: 1, Lease: time.Minute})
		f.NoError(err)
		_, err = f.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}, Limit: 1, Lease: time.Millisecond})
		f.NoError(err)
		f.NoError(f.admin.Pause(ctx, admin.PauseParams{Topic: "orders"}))
		f.passes()
		f.Empty(f.claim("orders"))
		f.Equal(1, f.Count(outbox.Ready), "the claim gave back what had expired")
		refused, err := f.Settle(ctx, f.DB.DB, []outbox.Settlement{{Receipt: held[0].Receipt, Outcome: outbox.Ack}})
		f.NoError(err)
		f.Empty(refused)
		f.Equal(1, f.Count(outbox.Done))
	})
}

// Whoever pauses a topic again holds its row, perhaps in a transaction of any length. It is paused all the time.
func TestTrap_ATopicThatIsPausedAgainStaysPaused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		suite.Need(t, f.DB, suite.ConcurrentWriters)
		ctx := t.Context()
		f.publish(outbox.Message{UUID: "a", Topic: "orders"})
		f.NoError(f.admin.Pause(ctx, admin.PauseParams{Topic: "orders", By: "alice"}))
		tx, err := f.DB.BeginTx(ctx, nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the end
		_, err = tx.ExecContext(ctx, f.SQL("UPDATE {outbox_paused} SET {reason} = 'again'"))
		f.NoError(err)
		f.Empty(f.claim("orders"))
		paused, err := f.admin.Paused(ctx)
		f.NoError(err)
		f.Len(paused, 1)
		f.NoError(tx.Rollback())
		f.Empty(f.claim("orders"))
	})
}

func TestPauseRefusesBadParameters(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var bad *outbox.FieldError
		f.ErrorAs(f.admin.Pause(t.Context(), admin.PauseParams{}), &bad)
		f.Equal("PauseParams.Topic", bad.Field)
		f.ErrorAs(f.admin.Resume(t.Context(), admin.ResumeParams{Topic: " x"}), &bad)
		f.Equal("ResumeParams.Topic", bad.Field)
	})
}
