package log_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// comeBackOlder leaves the database as it was when a position was the last, and all groups at it, with messages logged since
// under the UUIDs from … to-1.
func (f *fixture) comeBackOlder(position int64, topic string, from, to int) {
	f.T.Helper()
	f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
		f.RemoveOn(tx, "{message_id} IN (SELECT l.{message_id} FROM %s l WHERE l.{position} > %d)", f.LogTable(""), position)
		f.ExecOn(tx, "DELETE FROM %s WHERE {position} > %d", f.LogTable(""), position)
		f.ExecOn(tx, "UPDATE %s SET {position} = %d", f.LogTable("counter"), position)
		f.ExecOn(tx, "UPDATE %s SET {position} = %d", f.LogTable("group"), position)
		var messages []outbox.Message
		for _, uuid := range suite.Numbered(from, to) {
			messages = append(messages, outbox.Message{UUID: uuid, Topic: topic, Payload: []byte(uuid)})
		}
		if _, err := f.LogOutbox().Enqueue(ctx, tx, messages...); err != nil {
			return err
		}
		if len(messages) == 0 {
			return nil
		}
		return suite.StampIn(ctx, f.Outbox, tx)
	}))
}

// A group has acked ten messages. The database comes back with five of them, and as many new ones as there were or more get
// the positions of those that are gone. The group receives every new one, and whoever looks is told.
func TestTrap_LogAfterALossyFailover(t *testing.T) {
	for name, published := range map[string]int{"the log is shorter than the reader": 0, "of the same length": 5, "longer": 9} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				published := published // which changes below
				told := make(chan *outbox.LogWentBackError, 10)
				book := suite.NewLogBook()
				s := f.GroupSubscriber(f.DB.DB, "group", book, func(c *outbox.SubscriberConfig) {
					c.Hooks.OnLogWentBack = func(e *outbox.LogWentBackError) { told <- e }
				})
				f.LogN("orders", 0, 10)
				f.Stamp()
				messages := f.Subscribe(s, "orders")
				for range 10 {
					f.Receive(messages).Ack()
				}
				f.Eventually(func() bool { return f.Number("SELECT MAX({position}) FROM %s", f.LogTable("group")) == 10 }, suite.Patience, time.Millisecond)

				f.comeBackOlder(5, "orders", 100, 100+published)
				if published == 0 {
					event, _ := suite.Take(f.T, told, "the hook")
					f.Equal(&outbox.LogWentBackError{Group: "group", Topic: "orders", Reader: 10, Position: 5, Last: 5}, event)
					f.ErrorContains(f.Await(book, "ERROR", "come back older").Err, "position 10")
					f.LogN("orders", 100, 105)
					f.Stamp()
					published = 5
				}
				var received []string
				for range published {
					msg := f.Receive(messages)
					received = append(received, msg.UUID)
					msg.Ack()
				}
				f.Equal(suite.Numbered(100, 100+published), received)
				f.NoError(s.Close())
				f.Equal(int64(5+published), f.Number("SELECT MAX({position}) FROM %s", f.LogTable("group")))
			})
		})
	}
}

// A cursor moves only from where it stands, to a message that it has read.
func TestTrap_ACursorAfterALossyFailover(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 10)
		f.Stamp()
		cursor := func() seam.Cursor[outbox.LogMessage] {
			c, err := seam.NewCursor[outbox.LogMessage](f.Outbox, seam.CursorConfig{Group: "fanout:g", Lease: time.Minute})
			f.NoError(err)
			_, err = c.Acquire(f.Context())
			f.NoError(err)
			return c
		}
		c := cursor()
		wentBack := func(err error, reader, position, last int64) {
			t.Helper()
			var e *outbox.LogWentBackError
			f.ErrorAs(err, &e)
			f.Equal(outbox.LogWentBackError{Group: "fanout:g", Reader: reader, Position: position, Last: last}, *e)
		}
		wentBack(c.Advance(f.Context(), f.DB.DB, 0, 11), 11, 0, 10) // past the end of the log
		messages, err := c.Read(f.Context(), 0, 8)
		f.NoError(err)
		f.Len(messages, 8)
		f.NoError(c.Advance(f.Context(), f.DB.DB, 0, 5))

		f.comeBackOlder(5, "orders", 100, 107) // the log is longer than the reader knows
		wentBack(c.Advance(f.Context(), f.DB.DB, 5, 8), 8, 5, 12)
		_, err = c.Read(f.Context(), 8, 10)
		wentBack(err, 8, 0, 12)
		position, err := c.Acquire(f.Context())
		f.NoError(err)
		f.Equal(int64(5), position)
		messages, err = c.Read(f.Context(), position, 10)
		f.NoError(err)
		f.Len(messages, 7)
		f.NoError(c.Advance(f.Context(), f.DB.DB, 5, 9))

		f.Exec("UPDATE %s SET {position} = 6", f.LogTable("group"))
		wentBack(c.Advance(f.Context(), f.DB.DB, 9, 12), 12, 6, 12) // the group stands before where the reader believes it to be
		_, err = c.Read(f.Context(), 13, 10)
		wentBack(err, 13, 0, 12)
	})
}

// Fanout the same: copies of the new messages reach a topic and a publisher, also where one had failed before.
func TestTrap_FanoutAfterALossyFailover(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 5)
		f.Stamp()
		works, fails := suite.NewRecorder(), suite.NewRecorder()
		book := suite.NewLogBook()
		var wentBack atomic.Int64
		policy := fanout.Policy{Name: "p", Destinations: []fanout.Destination{
			fanout.ToTopic("copy"), fanout.ToPublisher("works", works, "x"), fanout.ToPublisher("fails", fails, "x")}}
		f.Dispatch(book, []fanout.Policy{policy}, func(c *fanout.Config) {
			c.OnDispatch = func(e fanout.DispatchEvent) {
				var err *outbox.LogWentBackError
				if errors.As(e.Err, &err) {
					wentBack.Add(1)
				}
			}
		})
		f.HasPassed("p", 5)
		fails.Fail(suite.ErrBoom)
		f.LogN("orders", 5, 10)
		f.Stamp()
		f.Has(works, 10) // which the cursor has not passed
		f.Has(fails, 15) // and which is tried again and again

		f.comeBackOlder(5, "orders", 100, 105)
		fails.Fail(nil)
		f.HasPassed("p", 10)
		f.Equal(append(suite.Numbered(0, 5), suite.Numbered(100, 105)...), f.UUIDsOf("copy"))
		f.Subset(works.UUIDs(), suite.Numbered(100, 105))
		f.Subset(fails.UUIDs(), suite.Numbered(100, 105))

		f.comeBackOlder(7, "orders", 200, 200) // shorter than the dispatcher
		f.Await(book, "ERROR", "come back older")
		f.Eventually(func() bool { return wentBack.Load() > 0 }, suite.Patience, time.Millisecond)
		f.LogN("orders", 200, 205)
		f.Stamp()
		f.HasPassed("p", 12)
		f.Equal(suite.Numbered(200, 205), f.UUIDsOf("copy")[len(f.UUIDsOf("copy"))-5:])
		f.Subset(works.UUIDs(), suite.Numbered(200, 205))
	})
}
