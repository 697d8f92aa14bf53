package conformance

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// groupSubscriber reads the log for a group.
func (f *fixture) groupSubscriber(db *sql.DB, group string, logger *logBook, options ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
	f.t.Helper()
	if logger == nil {
		logger = newLogBook()
	}
	return f.subscriberOn(db, logger, append([]func(*outbox.SubscriberConfig){func(c *outbox.SubscriberConfig) { c.ConsumerGroup = group }}, options...)...)
}

// stamp gives positions to all that is committed.
func (f *fixture) stamp() {
	f.t.Helper()
	s, err := outbox.NewSequencer(f.db.DB, outbox.SequencerConfig{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Table}, nil)
	f.NoError(err)
	for {
		n, err := seam.Sequencer(s).Stamp(f.ctx())
		f.NoError(err)
		if n == 0 {
			return
		}
	}
}

// comeBackOlder leaves the database as it was when a position was the last, and all groups at it, with messages logged since
// under the UUIDs from … to-1.
func (f *fixture) comeBackOlder(position int64, topic string, from, to int) {
	f.t.Helper()
	f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
		f.removeOn(tx, "{message_id} IN (SELECT l.{message_id} FROM %s l WHERE l.{position} > %d)", f.logTable(""), position)
		f.execOn(tx, "DELETE FROM %s WHERE {position} > %d", f.logTable(""), position)
		f.execOn(tx, "UPDATE %s SET {position} = %d", f.logTable("counter"), position)
		f.execOn(tx, "UPDATE %s SET {position} = %d", f.logTable("group"), position)
		var messages []outbox.Message
		for _, uuid := range numbered(from, to) {
			messages = append(messages, outbox.Message{UUID: uuid, Topic: topic, Payload: []byte(uuid)})
		}
		if _, err := f.logOutbox().Enqueue(ctx, tx, messages...); err != nil {
			return err
		}
		if len(messages) == 0 {
			return nil
		}
		return seam.Outbox(f.outbox).Run(ctx, tx, "outbox_log_stamp", map[string]int{"limit": 1000}, func(rows *sql.Rows) error {
			var topic string
			var n int
			return rows.Scan(&topic, &n)
		})
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
				book := newLogBook()
				s := f.groupSubscriber(f.db.DB, "group", book, func(c *outbox.SubscriberConfig) {
					c.Hooks.OnLogWentBack = func(e *outbox.LogWentBackError) { told <- e }
				})
				f.logN("orders", 0, 10)
				f.stamp()
				messages := f.subscribe(s, "orders")
				for range 10 {
					f.receive(messages).Ack()
				}
				f.Eventually(func() bool { return f.number("SELECT MAX({position}) FROM %s", f.logTable("group")) == 10 }, patience, time.Millisecond)

				f.comeBackOlder(5, "orders", 100, 100+published)
				if published == 0 {
					event, _ := take(f, told, "the hook")
					f.Equal(&outbox.LogWentBackError{Group: "group", Topic: "orders", Reader: 10, Position: 5, Last: 5}, event)
					f.ErrorContains(f.await(book, "ERROR", "come back older").err, "position 10")
					f.logN("orders", 100, 105)
					f.stamp()
					published = 5
				}
				var received []string
				for range published {
					msg := f.receive(messages)
					received = append(received, msg.UUID)
					msg.Ack()
				}
				f.Equal(numbered(100, 100+published), received)
				f.NoError(s.Close())
				f.Equal(int64(5+published), f.number("SELECT MAX({position}) FROM %s", f.logTable("group")))
			})
		})
	}
}

// A cursor moves only from where it stands, to a message that it has read.
func TestTrap_ACursorAfterALossyFailover(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.logN("orders", 0, 10)
		f.stamp()
		cursor := func() seam.Cursor[outbox.LogMessage] {
			c, err := seam.NewCursor[outbox.LogMessage](f.outbox, seam.CursorConfig{Group: "fanout:g", Lease: time.Minute})
			f.NoError(err)
			_, err = c.Acquire(f.ctx())
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
		wentBack(c.Advance(f.ctx(), f.db.DB, 0, 11), 11, 0, 10) // past the end of the log
		messages, err := c.Read(f.ctx(), 0, 8)
		f.NoError(err)
		f.Len(messages, 8)
		f.NoError(c.Advance(f.ctx(), f.db.DB, 0, 5))

		f.comeBackOlder(5, "orders", 100, 107) // the log is longer than the reader knows
		wentBack(c.Advance(f.ctx(), f.db.DB, 5, 8), 8, 5, 12)
		_, err = c.Read(f.ctx(), 8, 10)
		wentBack(err, 8, 0, 12)
		position, err := c.Acquire(f.ctx())
		f.NoError(err)
		f.Equal(int64(5), position)
		messages, err = c.Read(f.ctx(), position, 10)
		f.NoError(err)
		f.Len(messages, 7)
		f.NoError(c.Advance(f.ctx(), f.db.DB, 5, 9))

		f.exec("UPDATE %s SET {position} = 6", f.logTable("group"))
		wentBack(c.Advance(f.ctx(), f.db.DB, 9, 12), 12, 6, 12) // the group stands before where the reader believes it to be
		_, err = c.Read(f.ctx(), 13, 10)
		wentBack(err, 13, 0, 12)
	})
}

// Fanout the same: copies of the new messages reach a topic and a publisher, also where one had failed before.
func TestTrap_FanoutAfterALossyFailover(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.logN("orders", 0, 5)
		f.stamp()
		works, fails := newRecorder(), newRecorder()
		book := newLogBook()
		var wentBack atomic.Int64
		policy := fanout.Policy{Name: "p", Destinations: []fanout.Destination{
			fanout.ToTopic("copy"), fanout.ToPublisher("works", works, "x"), fanout.ToPublisher("fails", fails, "x")}}
		f.dispatch(book, []fanout.Policy{policy}, func(c *fanout.Config) {
			c.OnDispatch = func(e fanout.DispatchEvent) {
				var err *outbox.LogWentBackError
				if errors.As(e.Err, &err) {
					wentBack.Add(1)
				}
			}
		})
		f.hasPassed("p", 5)
		fails.fail(errBoom)
		f.logN("orders", 5, 10)
		f.stamp()
		f.has(works, 10) // which the cursor has not passed
		f.has(fails, 15) // and which is tried again and again

		f.comeBackOlder(5, "orders", 100, 105)
		fails.fail(nil)
		f.hasPassed("p", 10)
		f.Equal(append(numbered(0, 5), numbered(100, 105)...), f.uuidsOf("copy"))
		f.Subset(works.uuids(), numbered(100, 105))
		f.Subset(fails.uuids(), numbered(100, 105))

		f.comeBackOlder(7, "orders", 200, 200) // shorter than the dispatcher
		f.await(book, "ERROR", "come back older")
		f.Eventually(func() bool { return wentBack.Load() > 0 }, patience, time.Millisecond)
		f.logN("orders", 200, 205)
		f.stamp()
		f.hasPassed("p", 12)
		f.Equal(numbered(200, 205), f.uuidsOf("copy")[len(f.uuidsOf("copy"))-5:])
		f.Subset(works.uuids(), numbered(200, 205))
	})
}
