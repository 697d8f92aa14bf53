package admin_test

import (
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

var errStory = errors.New("first")

func TestHealth(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		h, err := f.admin.Health(ctx)
		f.NoError(err)
		f.WithinDuration(time.Now(), h.Now, time.Minute)
		now := h.Now
		h.Now = time.Time{}
		f.Zero(h)

		dialect := testoutbox.Dialect(f.DB.Name)
		both, err := outbox.New(f.DB.DB, outbox.Config{Dialect: dialect, Schema: f.DB.Schema, Log: outbox.QueueAndLog}, nil)
		f.NoError(err)
		_, err = both.Enqueue(ctx, f.DB.DB, outbox.Message{UUID: "a", Topic: "orders"}, outbox.Message{UUID: "b", Topic: "orders"}, outbox.Message{UUID: "c", Topic: "bills"})
		f.NoError(err)
		f.Enqueue("refused", 0, 2)
		f.fail("refused", "broken", 0)
		_, err = f.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}, {Topic: "bills"}}, Lease: time.Hour})
		f.NoError(err)
		f.Enqueue("lost", 0, 1)
		_, err = f.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "lost"}}, Lease: time.Millisecond})
		f.NoError(err)
		f.passes()

		h, err = f.admin.Health(ctx)
		f.NoError(err)
		f.Equal(2, h.Leases, "one of them no longer holds anything")
		f.Equal(1, h.ExpiredLeases)
		f.True(h.ExpiredSince.After(now.Add(-time.Millisecond)) && h.ExpiredSince.Before(h.Now))
		f.Equal(2, h.Failed)
		f.False(h.OldestFailed.IsZero())
		f.False(h.NewestFailed.Before(h.OldestFailed))
		f.Equal(3, h.Unlogged)
		f.False(h.UnloggedSince.IsZero())
		f.Zero(h.Position)

		leases, err := f.admin.Leases(ctx)
		f.NoError(err)
		var held []any
		for _, l := range leases {
			held = append(held, l.Topic, l.Messages)
		}
		f.Equal([]any{"bills", 1, "orders", 2, "", 0, "lost", 1}, held)
		f.NotEmpty(leases[0].Worker)
		f.True(leases[0].Until.After(h.Now))
	})
}

func TestLogGroups(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		groups, err := f.admin.LogGroups(ctx)
		f.NoError(err)
		f.Empty(groups)
		for _, name := range []string{"mail", "audit"} {
			config := f.Subscriber()
			config.ConsumerGroup = name
			s, err := outbox.NewSubscriber(f.DB.DB, config, nil)
			f.NoError(err)
			f.NoError(s.SubscribeInitialize("orders"))
			f.NoError(s.Close())
		}
		groups, err = f.admin.LogGroups(ctx)
		f.NoError(err)
		f.Len(groups, 2)
		f.Equal("audit", groups[0].Group)
		f.Equal("orders", groups[0].Topic)
		f.Zero(groups[0].Behind)
		f.Zero(groups[0].Lag)

		f.BlockGroup("mail", "orders")
		mail := func() admin.LogGroup {
			groups, err := f.admin.LogGroups(ctx)
			f.NoError(err)
			f.Len(groups, 2)
			return groups[1]
		}
		f.Equal(1, mail().Behind)
		f.Positive(mail().Attempts)
		_, err = f.admin.SkipGroupHead(ctx, admin.SkipGroupHeadParams{Group: "mail", Topic: "orders", By: "alice"})
		f.NoError(err)
		f.Zero(mail().Behind)
		f.Zero(mail().Attempts, "of the message that it is at, not of the one before")
		f.Equal(1, mail().Dead)
		f.Equal([]string{"alice: skip for group group 'mail', topic 'orders' (1)"}, f.audit())
	})
}

// A reader may hold the row of its group for as long as it handles a message. It is looked for just then.
func TestTrap_AGroupThatReadsIsListed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		suite.Need(t, f.DB, suite.ConcurrentWriters)
		f.BlockGroup("mail", "orders")
		tx, err := f.DB.BeginTx(t.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), f.SQL("UPDATE {outbox_log_group} SET {position} = {position}"))
		f.NoError(err)
		groups, err := f.admin.LogGroups(t.Context())
		f.NoError(err)
		f.Len(groups, 1)
		f.Equal(1, groups[0].Behind)
	})
}
