package join_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

func TestJOIN010_OBX077_AttachingCreatesAPendingStep(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 3})
		ready, held := f.EnqueueN("ready", 1)[0], f.ClaimOne("held")
		before := f.Now()
		f.NoError(c.Attach(f.Context(), nil, id, ready))
		f.NoError(c.Attach(f.Context(), f.DB.DB, id, held.ID))
		after := f.Now()
		f.Equal(map[outbox.MessageID]join.StepStatus{ready: join.StepPending, held.ID: join.StepPending}, f.Steps(id))

		steps, err := c.Steps(f.Context(), nil, id, outbox.MessageID{}, 10)
		f.NoError(err)
		f.Len(steps, 2)
		for _, s := range steps {
			f.Equal(join.StepPending, s.Status)
			f.False(s.ByReport)
			f.Between(before, after, s.CreatedAt)
		}
		f.Equal(int(outbox.InProgress), f.Row(held.ID).Status, "the message itself is as it was")
		f.Equal(held.Receipt.Owner, f.Row(held.ID).Owner)
	})
}

func TestJOIN011_OBX078_AttachingTwiceIsAttachingOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		held := f.ClaimOne("s")
		id := f.Start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Attach(f.Context(), nil, id, held.ID, held.ID))
		before := f.JoinRow(id)
		for range 3 {
			f.NoError(c.Attach(f.Context(), nil, id, held.ID))
			f.NoError(c.AttachByReport(f.Context(), nil, id, held.ID), "what a step ends by stays, too")
		}
		f.Equal(before, f.JoinRow(id))
		f.Equal(1, f.JoinRow(id).Members)
		f.Equal(1, f.JoinRow(id).Attached)

		f.Empty(f.Settle(suite.Settled(outbox.Ack, held)...))
		f.Stands(c, id, join.Pending, 1, 0)
		f.NoError(c.Attach(f.Context(), nil, id, held.ID))
		f.Stands(c, id, join.Pending, 1, 0)
		other := f.ClaimOne("s")
		f.NoError(c.Attach(f.Context(), nil, id, held.ID, other.ID), "together with a new one")
		f.Settle(suite.Settled(outbox.Fail, other)...)
		f.Stands(c, id, join.Failed, 1, 1)
		f.NoError(c.Attach(f.Context(), nil, id, held.ID, other.ID), "also when the join has ended and is full")
		f.Stands(c, id, join.Failed, 1, 1)
	})
}

func TestJOIN012_AttachingToAJoinThatIsNotThereIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		message := f.EnqueueN("s", 1)[0]
		unknown := join.ID{1}
		f.ErrorIs(c.Attach(f.Context(), nil, unknown, message), join.ErrNotFound)
		f.ErrorIs(c.AttachByReport(f.Context(), nil, unknown, message), join.ErrNotFound)
		f.ErrorIs(c.AttachJoin(f.Context(), nil, unknown, join.ID{2}), join.ErrNotFound)
		ids, err := c.Enqueue(f.Context(), nil, unknown, outbox.Message{Topic: "s"})
		f.ErrorIs(err, join.ErrNotFound)
		f.Empty(ids)
		f.ErrorIs(c.Seal(f.Context(), nil, unknown), join.ErrNotFound)
		f.ErrorIs(c.Cancel(f.Context(), nil, unknown), join.ErrNotFound)
		f.ErrorContains(c.Cancel(f.Context(), nil, unknown), unknown.String(), "it names the join")
		f.Equal(1, f.Count(), "what could not be attached was not sent")
		f.Zero(f.Number("SELECT COUNT(*) FROM {member}"))

		for _, err := range []error{
			c.Attach(f.Context(), nil, join.ID{}, message), c.AttachByReport(f.Context(), nil, join.ID{}, message),
			c.AttachJoin(f.Context(), nil, join.ID{}, unknown), c.Seal(f.Context(), nil, join.ID{}), c.Cancel(f.Context(), nil, join.ID{}),
		} {
			f.RequireField(err, "join id")
		}
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.RequireField(c.Attach(f.Context(), nil, id, message, outbox.MessageID{}), "message id")
		f.RequireField(c.AttachJoin(f.Context(), nil, id, id), "child")
		f.ErrorIs(c.Attach(f.Context(), (*sql.Conn)(nil), id, message), base.ErrNilDB)
		f.NoError(c.Attach(f.Context(), nil, id), "no messages are no error")
		f.Zero(f.JoinRow(id).Members)
	})
}

// The specification speaks of messages that are pending. One that has ended counts at once, or it never would.
func TestJOIN013_AttachingChangesNoCounterUnlessTheMessageHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 6})
		ready, held, retried := f.EnqueueN("ready", 1)[0], f.ClaimOne("held"), f.ClaimOne("retried")
		f.Settle(suite.Settled(outbox.Retry, retried)...)
		f.Backdate(id)
		before := f.JoinRow(id)
		f.NoError(c.Attach(f.Context(), nil, id, ready, held.ID, retried.ID))
		f.NoError(c.AttachByReport(f.Context(), nil, id, outbox.MessageID{1}))
		f.Stands(c, id, join.Pending, 0, 0)
		f.Equal(before.Updated, f.JoinRow(id).Updated)

		done, failed := f.ClaimOne("done"), f.ClaimOne("failed")
		f.Settle(append(suite.Settled(outbox.Ack, done), suite.Settled(outbox.Fail, failed)...)...)
		f.NoError(c.Attach(f.Context(), nil, id, failed.ID, done.ID))
		f.Stands(c, id, join.Pending, 1, 1)
		f.Equal(join.StepCompleted, f.Step(id, done.ID))
		f.Equal(join.StepFailed, f.Step(id, failed.ID))

		whole := f.Start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Attach(f.Context(), nil, whole, done.ID, failed.ID))
		f.Stands(c, whole, join.Failed, 1, 1)
		f.ErrorIs(c.Attach(f.Context(), nil, whole, ready), join.ErrEnded)

		byReport := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachByReport(f.Context(), nil, byReport, done.ID))
		f.Stands(c, byReport, join.Pending, 0, 0)
	})
}

func TestJOIN014_033_TheOutboxTableKnowsNothingOfJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		columns := f.columns(f.Config.Dialect.Traits().Table)
		f.NotEmpty(columns)
		for _, column := range columns {
			f.NotContains(strings.ToLower(column), "join")
		}
		// Nothing refers from the outbox to joins, nor from joins to the outbox: a step need not be a message of it.
		keys := map[string]string{
			testdb.SQLite:    "SELECT \"table\" FROM pragma_foreign_key_list('outbox')",
			testdb.Postgres:  "SELECT conname FROM pg_constraint WHERE contype = 'f' AND (conrelid = '" + f.SQL("{outbox}") + "'::regclass OR confrelid = '" + f.SQL("{outbox}") + "'::regclass)",
			testdb.SQLServer: "SELECT name FROM sys.foreign_keys WHERE OBJECT_ID(N'" + f.SQL("{outbox}") + "') IN (parent_object_id, referenced_object_id)",
		}[f.DB.Name]
		found, err := f.Strings(f.DB, keys)
		f.NoError(err)
		f.Empty(found)
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 1)
		f.Clear()
		f.Equal(join.StepPending, f.Step(id, steps[0]))
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, steps[0]))
		f.Stands(c, id, join.Completed, 1, 0)
	})
}

// columns lists the columns of a table of the default outbox, with their types.
func (f *fixture) columns(table string) []string {
	f.T.Helper()
	query := "SELECT CONCAT(COLUMN_NAME, ' ', DATA_TYPE, ' ', IS_NULLABLE, ' ', CHARACTER_MAXIMUM_LENGTH) FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA = '" +
		suite.Literal(f.Schema()) + "' AND TABLE_NAME = '" + table + "' ORDER BY ORDINAL_POSITION"
	if f.DB.Name == testdb.SQLite {
		query = "SELECT name || ' ' || type || ' ' || \"notnull\" FROM pragma_table_info('" + table + "')"
	}
	columns, err := f.Strings(f.DB, query)
	f.NoError(err)
	return columns
}

func TestJOIN023_NoJoinHasMoreStepsThanItExpects(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 2)
		more := f.EnqueueN("more", 2)
		f.ErrorIs(c.Attach(f.Context(), nil, id, more[0]), join.ErrFull)
		f.ErrorIs(c.AttachByReport(f.Context(), nil, id, outbox.MessageID{1}), join.ErrFull)
		_, err := c.Enqueue(f.Context(), nil, id, outbox.Message{Topic: "s"})
		f.ErrorIs(err, join.ErrFull)
		f.Equal(4, f.Count())

		two := f.Start(c, join.StartParams{ExpectedSteps: 2})
		f.ErrorIs(c.Attach(f.Context(), nil, two, append(more, steps[0])...), join.ErrFull)
		f.Zero(f.JoinRow(two).Members, "all of a call, or none")
		f.Zero(f.JoinRow(two).Attached)
		f.NoError(c.Attach(f.Context(), nil, two, more[0], more[0], more[1]), "one named twice is one")
		f.Equal(2, f.JoinRow(two).Attached)

		// Each step ends by itself and by reports; none counts twice.
		held := f.Claim("s")
		for _, s := range steps {
			f.NoError(c.ReportStepCompleted(f.Context(), nil, id, s))
			f.NoError(c.ReportStepFailed(f.Context(), nil, id, s))
		}
		f.Settle(suite.Settled(outbox.Fail, held...)...)
		f.Stands(c, id, join.Completed, 2, 0)
	})
}

func TestJOIN080_OBX090_AMessageIsAStepOfSeveralJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		held := f.ClaimOne("s")
		var joins []join.ID
		for range 3 {
			id := f.Start(c, join.StartParams{ExpectedSteps: 2})
			f.NoError(c.Attach(f.Context(), nil, id, held.ID))
			f.Equal(join.StepPending, f.Step(id, held.ID))
			joins = append(joins, id)
		}
		f.Equal(int64(3), f.Number("SELECT COUNT(*) FROM {member} WHERE {step} = '%s'", held.ID))
		f.NoError(c.ReportStepFailed(f.Context(), nil, joins[1], held.ID))
		f.Stands(c, joins[0], join.Pending, 0, 0)
		f.Stands(c, joins[1], join.Pending, 0, 1)
		f.Stands(c, joins[2], join.Pending, 0, 0)
	})
}

func TestJoinAttachesAllMessagesOrNone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{Open: true})
		messages := f.EnqueueN("s", 1100) // more than one statement takes
		unknown := outbox.MessageID{9}
		for _, few := range [][]outbox.MessageID{{unknown}, {messages[0], unknown, messages[1]}, {unknown, messages[0]}} {
			err := c.Attach(f.Context(), nil, id, few...)
			f.ErrorIs(err, join.ErrMessageNotFound)
			f.ErrorContains(err, unknown.String(), "it names the message")
		}
		f.ErrorIs(c.Attach(f.Context(), nil, id, append(messages, unknown)...), join.ErrMessageNotFound)
		f.Zero(f.JoinRow(id).Members)
		f.Zero(f.JoinRow(id).Attached)
		f.NoError(c.Attach(f.Context(), nil, id, messages...))
		f.Equal(1100, f.JoinRow(id).Members)
		f.Equal(1100, f.JoinRow(id).Attached)

		_, err := c.Enqueue(f.Context(), nil, id, outbox.Message{Topic: "s"}, outbox.Message{})
		f.RequireField(err, "Topic")
		f.Equal(1100, f.JoinRow(id).Members)
		ids, err := c.Enqueue(f.Context(), nil, id, make([]outbox.Message, 0)...)
		f.NoError(err)
		f.Empty(ids)
	})
}

// What is done in a caller's transaction is there when it commits, and not before, and never if it does not.
func TestJoinCallsLiveAndDieWithTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 4})
		message := f.EnqueueN("s", 1)[0]
		for _, commit := range []bool{false, true} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			f.NoError(c.Attach(f.Context(), tx, id, message))
			f.NoError(c.AttachByReport(f.Context(), tx, id, outbox.MessageID{1}))
			_, err = c.Enqueue(f.Context(), tx, id, outbox.Message{Topic: "enqueued"})
			f.NoError(err)
			_, err = c.EnqueueWait(f.Context(), tx, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
			f.NoError(err)
			f.NoError(c.ReportStepCompleted(f.Context(), tx, id, message))
			f.NoError(c.ReportStepFailed(f.Context(), tx, id, outbox.MessageID{1}))
			if !commit {
				f.NoError(tx.Rollback())
				f.Stands(c, id, join.Pending, 0, 0)
				r := f.JoinRow(id)
				f.Equal([]int{0, 0, 0}, []int{r.Members, r.Attached, r.Waiting})
				f.Equal(1, f.Count())
				continue
			}
			f.NoError(tx.Commit())
			f.Stands(c, id, join.Pending, 1, 1)
			r := f.JoinRow(id)
			f.Equal([]int{3, 3, 1}, []int{r.Members, r.Attached, r.Waiting})
			f.Equal(3, f.Count())
		}
		f.Settle(suite.Settled(outbox.Ack, f.Claim("s", "enqueued")...)...)
		f.Stands(c, id, join.Pending, 2, 1)

		for _, commit := range []bool{false, true} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			f.NoError(c.Cancel(f.Context(), tx, id))
			if commit {
				f.NoError(tx.Commit())
				f.Stands(c, id, join.Cancelled, 2, 1)
			} else {
				f.NoError(tx.Rollback())
				f.Stands(c, id, join.Pending, 2, 1)
			}
		}
	})
}

// A refusal changes nothing, and the caller's transaction goes on.
func TestJoinRefusalsLeaveTheCallersTransactionAsItWas(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 1)
		open, ended := f.Start(c, join.StartParams{Open: true}), f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.Cancel(f.Context(), nil, ended))
		message, none := f.EnqueueN("m", 1)[0], join.ID{1}
		many := f.EnqueueN("m", 1000)
		enqueue := func(tx *sql.Tx, id join.ID) error {
			_, err := c.Enqueue(f.Context(), tx, id, outbox.Message{Topic: "never sent"})
			return err
		}
		refusals := []struct {
			want error
			call func(tx *sql.Tx) error
		}{
			{join.ErrNotFound, func(tx *sql.Tx) error { return c.Attach(f.Context(), tx, none, message) }},
			{join.ErrFull, func(tx *sql.Tx) error { return c.Attach(f.Context(), tx, id, message) }},
			{join.ErrEnded, func(tx *sql.Tx) error { return c.Attach(f.Context(), tx, ended, message) }},
			{join.ErrMessageNotFound, func(tx *sql.Tx) error { return c.Attach(f.Context(), tx, open, message, outbox.MessageID{9}) }},
			{join.ErrMessageNotFound, func(tx *sql.Tx) error { return c.Attach(f.Context(), tx, open, append(many, outbox.MessageID{9})...) }},
			{join.ErrNotFound, func(tx *sql.Tx) error { return enqueue(tx, none) }},
			{join.ErrFull, func(tx *sql.Tx) error { return enqueue(tx, id) }},
			{join.ErrEnded, func(tx *sql.Tx) error { return enqueue(tx, ended) }},
			{join.ErrNotAStep, func(tx *sql.Tx) error { return c.ReportStepCompleted(f.Context(), tx, id, message) }},
			{join.ErrNotFound, func(tx *sql.Tx) error { return c.ReportStepFailed(f.Context(), tx, none, message) }},
			{join.ErrEnded, func(tx *sql.Tx) error { return c.Seal(f.Context(), tx, ended) }},
			{join.ErrEnded, func(tx *sql.Tx) error { return c.Cancel(f.Context(), tx, ended) }},
			{join.ErrNotFound, func(tx *sql.Tx) error { return c.AttachJoin(f.Context(), tx, open, none) }},
			{join.ErrNotFound, func(tx *sql.Tx) error {
				_, err := c.EnqueueWait(f.Context(), tx, join.Wait{Join: none, OnComplete: join.Continuation{Topic: "next"}})
				return err
			}},
		}
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the commit
		for i, r := range refusals {
			f.ErrorIs(r.call(tx), r.want, "call %d", i)
			_, err := f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "the caller's own", UUID: fmt.Sprint(i)})
			f.NoError(err, "after call %d", i)
		}
		f.NoError(tx.Commit())
		f.Len(f.Rows("{topic} = 'the caller''s own'"), len(refusals))
		f.Equal(2+1000+len(refusals), f.Count())
		f.Stands(c, id, join.Pending, 0, 0)
		f.Equal(1, f.JoinRow(id).Members)
		r := f.JoinRow(open)
		f.Equal([]int{0, 0, 0}, []int{r.Members, r.Attached, r.Waiting})
		f.Equal(join.StepPending, f.Step(id, steps[0]))
	})
}
