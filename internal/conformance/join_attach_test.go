package conformance

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

func TestJOIN010_OBX077_AttachingCreatesAPendingStep(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 3})
		ready, held := f.enqueueN("ready", 1)[0], f.claimOne("held")
		before := f.now()
		f.NoError(c.Attach(f.ctx(), nil, id, ready))
		f.NoError(c.Attach(f.ctx(), f.db.DB, id, held.ID))
		after := f.now()
		f.Equal(map[outbox.MessageID]join.StepStatus{ready: join.StepPending, held.ID: join.StepPending}, f.steps(id))

		steps, err := c.Steps(f.ctx(), nil, id, outbox.MessageID{}, 10)
		f.NoError(err)
		f.Len(steps, 2)
		for _, s := range steps {
			f.Equal(join.StepPending, s.Status)
			f.False(s.ByReport)
			f.between(before, after, s.CreatedAt)
		}
		f.Equal(int(outbox.InProgress), f.row(held.ID).status, "the message itself is as it was")
		f.Equal(held.Receipt.Owner, f.row(held.ID).owner)
	})
}

func TestJOIN011_OBX078_AttachingTwiceIsAttachingOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		held := f.claimOne("s")
		id := f.start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Attach(f.ctx(), nil, id, held.ID, held.ID))
		before := f.joinRow(id)
		for range 3 {
			f.NoError(c.Attach(f.ctx(), nil, id, held.ID))
			f.NoError(c.AttachByReport(f.ctx(), nil, id, held.ID), "what a step ends by stays, too")
		}
		f.Equal(before, f.joinRow(id))
		f.Equal(1, f.joinRow(id).members)
		f.Equal(1, f.joinRow(id).attached)

		f.Empty(f.settle(settled(outbox.Ack, held)...))
		f.stands(c, id, join.Pending, 1, 0)
		f.NoError(c.Attach(f.ctx(), nil, id, held.ID))
		f.stands(c, id, join.Pending, 1, 0)
		other := f.claimOne("s")
		f.NoError(c.Attach(f.ctx(), nil, id, held.ID, other.ID), "together with a new one")
		f.settle(settled(outbox.Fail, other)...)
		f.stands(c, id, join.Failed, 1, 1)
		f.NoError(c.Attach(f.ctx(), nil, id, held.ID, other.ID), "also when the join has ended and is full")
		f.stands(c, id, join.Failed, 1, 1)
	})
}

func TestJOIN012_AttachingToAJoinThatIsNotThereIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		message := f.enqueueN("s", 1)[0]
		unknown := join.ID{1}
		f.ErrorIs(c.Attach(f.ctx(), nil, unknown, message), join.ErrNotFound)
		f.ErrorIs(c.AttachByReport(f.ctx(), nil, unknown, message), join.ErrNotFound)
		f.ErrorIs(c.AttachJoin(f.ctx(), nil, unknown, join.ID{2}), join.ErrNotFound)
		ids, err := c.Enqueue(f.ctx(), nil, unknown, outbox.Message{Topic: "s"})
		f.ErrorIs(err, join.ErrNotFound)
		f.Empty(ids)
		f.ErrorIs(c.Seal(f.ctx(), nil, unknown), join.ErrNotFound)
		f.ErrorIs(c.Cancel(f.ctx(), nil, unknown), join.ErrNotFound)
		f.ErrorContains(c.Cancel(f.ctx(), nil, unknown), unknown.String(), "it names the join")
		f.Equal(1, f.count(), "what could not be attached was not sent")
		f.Zero(f.number("SELECT COUNT(*) FROM {member}"))

		for _, err := range []error{
			c.Attach(f.ctx(), nil, join.ID{}, message), c.AttachByReport(f.ctx(), nil, join.ID{}, message),
			c.AttachJoin(f.ctx(), nil, join.ID{}, unknown), c.Seal(f.ctx(), nil, join.ID{}), c.Cancel(f.ctx(), nil, join.ID{}),
		} {
			f.requireField(err, "join id")
		}
		id := f.start(c, join.StartParams{ExpectedSteps: 1})
		f.requireField(c.Attach(f.ctx(), nil, id, message, outbox.MessageID{}), "message id")
		f.requireField(c.AttachJoin(f.ctx(), nil, id, id), "child")
		f.ErrorIs(c.Attach(f.ctx(), (*sql.Conn)(nil), id, message), base.ErrNilDB)
		f.NoError(c.Attach(f.ctx(), nil, id), "no messages are no error")
		f.Zero(f.joinRow(id).members)
	})
}

// The specification speaks of messages that are pending. One that has ended counts at once, or it never would.
func TestJOIN013_AttachingChangesNoCounterUnlessTheMessageHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 6})
		ready, held, retried := f.enqueueN("ready", 1)[0], f.claimOne("held"), f.claimOne("retried")
		f.settle(settled(outbox.Retry, retried)...)
		f.backdate(id)
		before := f.joinRow(id)
		f.NoError(c.Attach(f.ctx(), nil, id, ready, held.ID, retried.ID))
		f.NoError(c.AttachByReport(f.ctx(), nil, id, outbox.MessageID{1}))
		f.stands(c, id, join.Pending, 0, 0)
		f.Equal(before.updated, f.joinRow(id).updated)

		done, failed := f.claimOne("done"), f.claimOne("failed")
		f.settle(append(settled(outbox.Ack, done), settled(outbox.Fail, failed)...)...)
		f.NoError(c.Attach(f.ctx(), nil, id, failed.ID, done.ID))
		f.stands(c, id, join.Pending, 1, 1)
		f.Equal(join.StepCompleted, f.step(id, done.ID))
		f.Equal(join.StepFailed, f.step(id, failed.ID))

		whole := f.start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Attach(f.ctx(), nil, whole, done.ID, failed.ID))
		f.stands(c, whole, join.Failed, 1, 1)
		f.ErrorIs(c.Attach(f.ctx(), nil, whole, ready), join.ErrEnded)

		byReport := f.start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachByReport(f.ctx(), nil, byReport, done.ID))
		f.stands(c, byReport, join.Pending, 0, 0)
	})
}

func TestJOIN014_033_TheOutboxTableKnowsNothingOfJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		columns := f.columns(f.config.Dialect.Traits().Table)
		f.NotEmpty(columns)
		for _, column := range columns {
			f.NotContains(strings.ToLower(column), "join")
		}
		// Nothing refers from the outbox to joins, nor from joins to the outbox: a step need not be a message of it.
		keys := map[string]string{
			testdb.SQLite:    "SELECT \"table\" FROM pragma_foreign_key_list('outbox')",
			testdb.Postgres:  "SELECT conname FROM pg_constraint WHERE contype = 'f' AND (conrelid = '" + f.sql("{outbox}") + "'::regclass OR confrelid = '" + f.sql("{outbox}") + "'::regclass)",
			testdb.SQLServer: "SELECT name FROM sys.foreign_keys WHERE OBJECT_ID(N'" + f.sql("{outbox}") + "') IN (parent_object_id, referenced_object_id)",
		}[f.db.Name]
		found, err := f.strings(f.db, keys)
		f.NoError(err)
		f.Empty(found)
		c := f.joins()
		id, steps := f.startWith(c, "s", 1)
		f.clear()
		f.Equal(join.StepPending, f.step(id, steps[0]))
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, steps[0]))
		f.stands(c, id, join.Completed, 1, 0)
	})
}

// columns lists the columns of a table of the default outbox, with their types.
func (f *fixture) columns(table string) []string {
	f.t.Helper()
	query := "SELECT CONCAT(COLUMN_NAME, ' ', DATA_TYPE, ' ', IS_NULLABLE, ' ', CHARACTER_MAXIMUM_LENGTH) FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA = '" +
		literal(f.schema()) + "' AND TABLE_NAME = '" + table + "' ORDER BY ORDINAL_POSITION"
	if f.db.Name == testdb.SQLite {
		query = "SELECT name || ' ' || type || ' ' || \"notnull\" FROM pragma_table_info('" + table + "')"
	}
	columns, err := f.strings(f.db, query)
	f.NoError(err)
	return columns
}

func TestJOIN023_NoJoinHasMoreStepsThanItExpects(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 2)
		more := f.enqueueN("more", 2)
		f.ErrorIs(c.Attach(f.ctx(), nil, id, more[0]), join.ErrFull)
		f.ErrorIs(c.AttachByReport(f.ctx(), nil, id, outbox.MessageID{1}), join.ErrFull)
		_, err := c.Enqueue(f.ctx(), nil, id, outbox.Message{Topic: "s"})
		f.ErrorIs(err, join.ErrFull)
		f.Equal(4, f.count())

		two := f.start(c, join.StartParams{ExpectedSteps: 2})
		f.ErrorIs(c.Attach(f.ctx(), nil, two, append(more, steps[0])...), join.ErrFull)
		f.Zero(f.joinRow(two).members, "all of a call, or none")
		f.Zero(f.joinRow(two).attached)
		f.NoError(c.Attach(f.ctx(), nil, two, more[0], more[0], more[1]), "one named twice is one")
		f.Equal(2, f.joinRow(two).attached)

		// Each step ends by itself and by reports; none counts twice.
		held := f.claim("s")
		for _, s := range steps {
			f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, s))
			f.NoError(c.ReportStepFailed(f.ctx(), nil, id, s))
		}
		f.settle(settled(outbox.Fail, held...)...)
		f.stands(c, id, join.Completed, 2, 0)
	})
}

func TestJOIN080_OBX090_AMessageIsAStepOfSeveralJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		held := f.claimOne("s")
		var joins []join.ID
		for range 3 {
			id := f.start(c, join.StartParams{ExpectedSteps: 2})
			f.NoError(c.Attach(f.ctx(), nil, id, held.ID))
			f.Equal(join.StepPending, f.step(id, held.ID))
			joins = append(joins, id)
		}
		f.Equal(int64(3), f.number("SELECT COUNT(*) FROM {member} WHERE {step} = '%s'", held.ID))
		f.NoError(c.ReportStepFailed(f.ctx(), nil, joins[1], held.ID))
		f.stands(c, joins[0], join.Pending, 0, 0)
		f.stands(c, joins[1], join.Pending, 0, 1)
		f.stands(c, joins[2], join.Pending, 0, 0)
	})
}

func TestJoinAttachesAllMessagesOrNone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id := f.start(c, join.StartParams{Open: true})
		messages := f.enqueueN("s", 1100) // more than one statement takes
		unknown := outbox.MessageID{9}
		for _, few := range [][]outbox.MessageID{{unknown}, {messages[0], unknown, messages[1]}, {unknown, messages[0]}} {
			err := c.Attach(f.ctx(), nil, id, few...)
			f.ErrorIs(err, join.ErrMessageNotFound)
			f.ErrorContains(err, unknown.String(), "it names the message")
		}
		f.ErrorIs(c.Attach(f.ctx(), nil, id, append(messages, unknown)...), join.ErrMessageNotFound)
		f.Zero(f.joinRow(id).members)
		f.Zero(f.joinRow(id).attached)
		f.NoError(c.Attach(f.ctx(), nil, id, messages...))
		f.Equal(1100, f.joinRow(id).members)
		f.Equal(1100, f.joinRow(id).attached)

		_, err := c.Enqueue(f.ctx(), nil, id, outbox.Message{Topic: "s"}, outbox.Message{})
		f.requireField(err, "Topic")
		f.Equal(1100, f.joinRow(id).members)
		ids, err := c.Enqueue(f.ctx(), nil, id, make([]outbox.Message, 0)...)
		f.NoError(err)
		f.Empty(ids)
	})
}

// What is done in a caller's transaction is there when it commits, and not before, and never if it does not.
func TestJoinCallsLiveAndDieWithTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 4})
		message := f.enqueueN("s", 1)[0]
		for _, commit := range []bool{false, true} {
			tx, err := f.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			f.NoError(c.Attach(f.ctx(), tx, id, message))
			f.NoError(c.AttachByReport(f.ctx(), tx, id, outbox.MessageID{1}))
			_, err = c.Enqueue(f.ctx(), tx, id, outbox.Message{Topic: "enqueued"})
			f.NoError(err)
			_, err = c.EnqueueWait(f.ctx(), tx, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
			f.NoError(err)
			f.NoError(c.ReportStepCompleted(f.ctx(), tx, id, message))
			f.NoError(c.ReportStepFailed(f.ctx(), tx, id, outbox.MessageID{1}))
			if !commit {
				f.NoError(tx.Rollback())
				f.stands(c, id, join.Pending, 0, 0)
				r := f.joinRow(id)
				f.Equal([]int{0, 0, 0}, []int{r.members, r.attached, r.waiting})
				f.Equal(1, f.count())
				continue
			}
			f.NoError(tx.Commit())
			f.stands(c, id, join.Pending, 1, 1)
			r := f.joinRow(id)
			f.Equal([]int{3, 3, 1}, []int{r.members, r.attached, r.waiting})
			f.Equal(3, f.count())
		}
		f.settle(settled(outbox.Ack, f.claim("s", "enqueued")...)...)
		f.stands(c, id, join.Pending, 2, 1)

		for _, commit := range []bool{false, true} {
			tx, err := f.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			f.NoError(c.Cancel(f.ctx(), tx, id))
			if commit {
				f.NoError(tx.Commit())
				f.stands(c, id, join.Cancelled, 2, 1)
			} else {
				f.NoError(tx.Rollback())
				f.stands(c, id, join.Pending, 2, 1)
			}
		}
	})
}

// A refusal changes nothing, and the caller's transaction goes on.
func TestJoinRefusalsLeaveTheCallersTransactionAsItWas(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 1)
		open, ended := f.start(c, join.StartParams{Open: true}), f.start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.Cancel(f.ctx(), nil, ended))
		message, none := f.enqueueN("m", 1)[0], join.ID{1}
		many := f.enqueueN("m", 1000)
		enqueue := func(tx *sql.Tx, id join.ID) error {
			_, err := c.Enqueue(f.ctx(), tx, id, outbox.Message{Topic: "never sent"})
			return err
		}
		refusals := []struct {
			want error
			call func(tx *sql.Tx) error
		}{
			{join.ErrNotFound, func(tx *sql.Tx) error { return c.Attach(f.ctx(), tx, none, message) }},
			{join.ErrFull, func(tx *sql.Tx) error { return c.Attach(f.ctx(), tx, id, message) }},
			{join.ErrEnded, func(tx *sql.Tx) error { return c.Attach(f.ctx(), tx, ended, message) }},
			{join.ErrMessageNotFound, func(tx *sql.Tx) error { return c.Attach(f.ctx(), tx, open, message, outbox.MessageID{9}) }},
			{join.ErrMessageNotFound, func(tx *sql.Tx) error { return c.Attach(f.ctx(), tx, open, append(many, outbox.MessageID{9})...) }},
			{join.ErrNotFound, func(tx *sql.Tx) error { return enqueue(tx, none) }},
			{join.ErrFull, func(tx *sql.Tx) error { return enqueue(tx, id) }},
			{join.ErrEnded, func(tx *sql.Tx) error { return enqueue(tx, ended) }},
			{join.ErrNotAStep, func(tx *sql.Tx) error { return c.ReportStepCompleted(f.ctx(), tx, id, message) }},
			{join.ErrNotFound, func(tx *sql.Tx) error { return c.ReportStepFailed(f.ctx(), tx, none, message) }},
			{join.ErrEnded, func(tx *sql.Tx) error { return c.Seal(f.ctx(), tx, ended) }},
			{join.ErrEnded, func(tx *sql.Tx) error { return c.Cancel(f.ctx(), tx, ended) }},
			{join.ErrNotFound, func(tx *sql.Tx) error { return c.AttachJoin(f.ctx(), tx, open, none) }},
			{join.ErrNotFound, func(tx *sql.Tx) error {
				_, err := c.EnqueueWait(f.ctx(), tx, join.Wait{Join: none, OnComplete: join.Continuation{Topic: "next"}})
				return err
			}},
		}
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the commit
		for i, r := range refusals {
			f.ErrorIs(r.call(tx), r.want, "call %d", i)
			_, err := f.outbox.Enqueue(f.ctx(), tx, outbox.Message{Topic: "the caller's own", UUID: fmt.Sprint(i)})
			f.NoError(err, "after call %d", i)
		}
		f.NoError(tx.Commit())
		f.Len(f.rows("{topic} = 'the caller''s own'"), len(refusals))
		f.Equal(2+1000+len(refusals), f.count())
		f.stands(c, id, join.Pending, 0, 0)
		f.Equal(1, f.joinRow(id).members)
		r := f.joinRow(open)
		f.Equal([]int{0, 0, 0}, []int{r.members, r.attached, r.waiting})
		f.Equal(join.StepPending, f.step(id, steps[0]))
	})
}
