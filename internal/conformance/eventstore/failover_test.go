package eventstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A projection has applied ten events. The database comes back with five of them, with the view and the group as they were
// then, and has been given five others since: the log is as long as the projection believes it to be. It applies these, and does
// not wait until the log is longer.
func TestTrap_AProjectionAfterALossyFailover(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.createSum("view")
		told := make(chan *outbox.LogWentBackError, 10)
		store, err := eventstore.New(f.DB.DB, eventstore.Config{
			Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema, Hooks: outbox.Hooks{OnLogWentBack: func(e *outbox.LogWentBackError) { told <- e }}}, nil)
		f.NoError(err)
		p, err := store.NewProjection(eventstore.ProjectionConfig{Name: "view", LeaseDuration: 2 * time.Second, Apply: addTo(f.Table("view"))})
		f.NoError(err)
		f.append("s", eventstore.NoStream, events(0, 10)...)
		f.stamp()
		f.background(p.Run)
		f.waitFor("view", "s", 10)

		f.NoError(outbox.InTx(f.ctx(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			for _, statement := range []string{
				f.SQL("DELETE FROM %s WHERE {message_id} IN (SELECT l.{message_id} FROM %s l WHERE l.{position} > 5)", f.part(""), f.part("log")),
				f.SQL("DELETE FROM %s WHERE {version} > 5", f.part("event")),
				f.SQL("DELETE FROM %s WHERE {position} > 5", f.part("log")),
				f.SQL("UPDATE %s SET {position} = 5", f.part("log_counter")),
				f.SQL("UPDATE %s SET {position} = 5", f.part("log_group")),
				f.SQL("UPDATE %s SET {version} = 5", f.part("event_stream")),
				f.SQL("DELETE FROM %s WHERE position_of > 5", f.Table("view")),
			} {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			if _, err := f.store.Append(ctx, tx, "s", eventstore.Exactly(5), events(5, 5)...); err != nil {
				return err
			}
			return suite.StampIn(ctx, f.Outbox.Outbox, tx)
		}))
		f.waitFor("view", "s", 10)
		f.hasSum("view", 10)
		event, _ := suite.Take(f.T, told, "the hook")
		f.Equal(&outbox.LogWentBackError{Group: "view", Reader: 10, Position: 5, Last: 10}, event)
	})
}
