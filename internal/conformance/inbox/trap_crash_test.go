package inbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
	"github.com/incursa/watermill-outbox/middleware"
)

// The connection breaks at each statement of a receipt in turn, up to the commit: the message comes again and is handled once.
func TestTrap_InboxAConnectionThatBreaks(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		for broken := 0; ; broken++ {
			var sent atomic.Int32
			pool := faults.Open(t, f.DB, faults.Hooks{Before: func(context.Context, faults.Statement) error {
				if int(sent.Add(1))-1 == broken {
					return driver.ErrBadConn
				}
				return nil
			}})
			pool.SetMaxIdleConns(0)
			id := fmt.Sprint(broken)
			handler := func(msg *message.Message) ([]*message.Message, error) {
				return []*message.Message{message.NewMessage("next", nil)}, f.Effect(msg.Context(), broken)
			}
			_, err := f.Guarded(f.Open(pool, "", nil), handler)(f.Coming(id, "order"))
			if int(sent.Load()) <= broken {
				f.NoError(err)
				f.Greater(broken, 2, "it has been through every statement")
				break
			}
			if err != nil { // where it broke before anything was sent, database/sql has tried again itself
				f.Zero(int(f.Number("SELECT COUNT(*) FROM %s WHERE id = %d", f.Effects(), broken)), "statement %d: %v", broken, err)
				f.Zero(int(f.Number("SELECT COUNT(*) FROM {entry} WHERE {message_id} = '%s'", id)), "statement %d: %v", broken, err)
			}
			produced, err := f.Guarded(f.In, handler)(f.Coming(id, "order"))
			f.NoError(err)
			f.Len(produced, 1)
			f.Equal(1, int(f.Number("SELECT COUNT(*) FROM %s WHERE id = %d", f.Effects(), broken)))
		}
	})
}

// The answer to the commit is lost: it is not known whether it was done, and the message that comes again is not handled twice.
func TestTrap_InboxTheAnswerToTheCommitIsLost(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		pool := faults.Open(t, f.DB, faults.Hooks{Answer: func(_ context.Context, s faults.Statement) error {
			if s.Text == faults.Commit {
				return driver.ErrBadConn
			}
			return nil
		}})
		handler := func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("next", []byte("of order"))}, f.Effect(msg.Context(), 1)
		}
		_, err := f.Guarded(f.Open(pool, "", nil), handler)(f.Coming("1", "order"))
		f.ErrorIs(err, driver.ErrBadConn)
		produced, err := f.Guarded(f.In, handler)(f.Coming("1", "order"))
		f.NoError(err)
		f.Len(produced, 1, "what has not been published is published now")
		f.Equal("of order", string(produced[0].Payload))
		f.Equal(1, f.CountEffects())
	})
}

// A worker is killed between its handler and the commit.
func TestTrap_InboxAKilledWorker(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		lines := make(chan testprocess.Line)
		worker := testprocess.Start(t, inboxWorkerVariable, inboxJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.Config.Schema, f.Effects()}, lines)
		line, _ := suite.Take(f.T, lines, "the handler")
		f.Equal("handled", line.Text)
		f.NoError(worker.Kill())
		line, _ = suite.Take(f.T, lines, "the end of the worker")
		f.Empty(line.Text)

		var calls atomic.Int32
		_, err := f.Guarded(f.In, f.Ship(&calls))(f.Coming("1", "order"))
		f.NoError(err)
		f.Equal(1, int(calls.Load()))
		f.Equal(1, f.CountEffects())
		f.Equal(1, f.Entry(suite.KeyOf("1")).Seen)
	})
}

// inboxWorkerVariable makes the test program a worker that handles one message and never commits. Its value is the job.
const inboxWorkerVariable = "OUTBOX_TEST_INBOX_WORKER"

type inboxJob struct{ Backend, Driver, DSN, Schema, Effects string }

func (job inboxJob) run() (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	in, err := inbox.New(db, inbox.Config{Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema}, nil)
	if err != nil {
		return err
	}
	once, err := middleware.Inbox(in, suite.Identity)
	if err != nil {
		return err
	}
	_, err = once(func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := outbox.TxFrom(msg.Context())
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO "+job.Effects+" (id) VALUES (1)"); err != nil {
			return nil, err
		}
		fmt.Fprintln(os.Stdout, "handled")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or the test has ended
		return nil, errors.New("it was not killed")
	})(message.NewMessage("1", []byte("order")))
	return err
}
