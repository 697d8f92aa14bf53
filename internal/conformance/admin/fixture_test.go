package admin_test

import (
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

type fixture struct {
	*testoutbox.Outbox
	admin *admin.Admin
}

func forEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		a, err := admin.New(o.Outbox)
		o.NoError(err)
		test(t, &fixture{o, a})
	})
}

// fail has so many messages of a topic fail for good, or all that are due if n is 0, and returns their ids.
func (f *fixture) fail(topic, reason string, n int) (ids []outbox.MessageID) {
	f.T.Helper()
	for left := n; ; {
		limit := 1000
		if n > 0 {
			limit = min(left, limit)
		}
		claimed, err := f.Claim(f.T.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topic}}, Limit: limit, Lease: time.Minute})
		f.NoError(err)
		var settlements []outbox.Settlement
		for _, c := range claimed {
			ids = append(ids, c.ID)
			settlements = append(settlements, outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Fail, Err: errors.New(reason)})
		}
		refused, err := f.Settle(f.T.Context(), f.DB.DB, settlements)
		f.NoError(err)
		f.Empty(refused)
		left -= len(claimed)
		if len(claimed) == 0 || n > 0 && left == 0 {
			return ids
		}
	}
}

// passes waits until the database's clock is past what it was: moments that a test compares are then not the same.
func (f *fixture) passes() {
	f.T.Helper()
	begun, err := f.admin.Health(f.T.Context())
	f.NoError(err)
	f.Eventually(func() bool {
		h, err := f.admin.Health(f.T.Context())
		return err == nil && h.Now.After(begun.Now.Add(time.Millisecond))
	}, testoutbox.Patience, time.Millisecond)
}

func uuids(messages []admin.Message) (list []string) {
	for _, m := range messages {
		list = append(list, m.UUID)
	}
	return list
}
