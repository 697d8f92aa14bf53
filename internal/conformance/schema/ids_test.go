package schema_test

import (
	"sync"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// Ids made later sort later in the database's own order, so that its index on them grows at one end.
func TestTrap_MessageIDsGrowInTheDatabasesOwnOrder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.OrdersUUIDs)
		newID := f.Config.Dialect.Traits().NewMessageID
		rapid.Check(t, func(rt *rapid.T) {
			f.Clear()
			var made []outbox.MessageID
			var messages []outbox.Message
			for range rapid.IntRange(2, 40).Draw(rt, "ids") {
				for range rapid.IntRange(0, 500).Draw(rt, "ids in between") { // lets the clock go on
					_, err := newID()
					f.NoError(err)
				}
				id, err := newID()
				f.NoError(err)
				made = append(made, id)
			}
			shuffled := rapid.Permutation(made).Draw(rt, "order of the inserts")
			for _, id := range shuffled {
				messages = append(messages, outbox.Message{Topic: "orders", ID: id})
			}
			f.Enqueue(messages...)
			f.Equal(made, f.idsInOrder())
		})
	})
}

// idsInOrder are the ids as the database sorts them.
func (f *fixture) idsInOrder() (ids []outbox.MessageID) {
	f.T.Helper()
	rows, err := f.DB.QueryContext(f.Context(), f.SQL("SELECT %s FROM {all} ORDER BY {message_id}", f.Text("message_id")))
	f.NoError(err)
	defer func() { f.NoError(rows.Close()) }()
	for rows.Next() {
		var text string
		f.NoError(rows.Scan(&text))
		ids = append(ids, outbox.MessageID(uuid.MustParse(text)))
	}
	f.NoError(rows.Err())
	return ids
}

func TestMessageIDsAreUniqueAndValidUUIDs(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.Name(), func(t *testing.T) {
			const makers, each = 8, 5000
			var mu sync.Mutex
			seen := map[outbox.MessageID]bool{}
			var group sync.WaitGroup
			for range makers {
				group.Go(func() {
					for range each {
						id, err := d.Traits().NewMessageID()
						mu.Lock()
						if err != nil || seen[id] || uuid.UUID(id).Variant() != uuid.RFC4122 || uuid.UUID(id).Version() < 7 {
							t.Errorf("%v: %v, seen %v", id, err, seen[id])
						}
						seen[id] = true
						mu.Unlock()
					}
				})
			}
			group.Wait()
		})
	}
}
