package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

func TestOBX001_EnqueueStoresDurably(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Enqueue(outbox.Message{
			UUID: "a free text", Topic: "orders", Payload: []byte("\x00\xffbytes"), Headers: map[string]string{"k": "v"},
			CorrelationID: "cause", StreamKey: "order-1",
		})

		// Another pool sees it: it is in the database and not in a connection of ours.
		again := f.NewOutbox(f.DB.Reopen(t).DB)
		records, err := again.Get(f.Context(), ids...)
		f.NoError(err)
		f.Len(records, 1)
		f.Equal(ids[0], records[0].ID)
		f.Equal("a free text", records[0].UUID)
		f.Equal("orders", records[0].Topic)
		f.Equal([]byte("\x00\xffbytes"), records[0].Payload)
		f.Equal(map[string]string{"k": "v"}, records[0].Headers)
		f.Equal("cause", records[0].CorrelationID)
		f.Equal("order-1", records[0].StreamKey)
		f.Equal(int64(1), f.Number("SELECT COUNT(*) FROM {all} WHERE {topic} = 'orders' AND {uuid} = 'a free text'"))
	})
}

func TestOBX002_EnqueueAloneIsOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		taken := f.Enqueue(outbox.Message{Topic: "orders"})[0]

		// 1,500 messages take several statements; the last of them is refused, so none may be there.
		messages := make([]outbox.Message, 1500)
		for i := range messages {
			messages[i].Topic = "orders"
		}
		messages[len(messages)-1].ID = taken
		_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, messages...)
		f.Error(err)
		f.Equal(1, f.Count())

		messages[len(messages)-1].ID = outbox.MessageID{}
		ids, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, messages...)
		f.NoError(err)
		f.Len(ids, 1500)
		f.Equal(1501, f.Count())
	})
}

func TestOBX003_EnqueueJoinsTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		log := &faults.Log{}
		pool := faults.Open(t, f.DB, log.Hooks())

		for _, end := range []string{"rollback", "commit"} {
			tx, err := pool.BeginTx(f.Context(), nil)
			f.NoError(err)
			log.Take()
			for range 2 {
				_, err = f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: end})
				f.NoError(err)
			}
			for _, s := range log.Take() {
				f.NotContains([]string{faults.Begin, faults.Commit, faults.Rollback}, s.Text)
			}
			var inside int
			f.NoError(tx.QueryRowContext(f.Context(), f.SQL("SELECT COUNT(*) FROM {all}")).Scan(&inside))
			f.Equal(2, inside, "the transaction is still open and has the rows")
			if end == "rollback" {
				f.NoError(tx.Rollback())
				f.Equal(0, f.Count())
			} else {
				f.NoError(tx.Commit())
				f.Equal(2, f.Count())
			}
		}
	})
}

func TestOBX003_EnqueueJoinsTheTransactionOfAConnection(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		conn, err := f.DB.Conn(f.Context())
		f.NoError(err)
		defer func() { f.NoError(conn.Close()) }()
		for _, end := range []string{"ROLLBACK", "COMMIT"} {
			f.ExecOn(conn, "%s", f.Config.Dialect.Traits().Begin)
			_, err = f.Outbox.Enqueue(f.Context(), conn, outbox.Message{Topic: end})
			f.NoError(err)
			f.ExecOn(conn, "%s", end)
		}
		f.Equal(1, f.Count())
		f.Len(f.Claim("COMMIT"), 1)
	})
}

func TestOBX003_AFailedEnqueueLeavesTheTransactionToItsOwner(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.UsableAfterError)
		taken := f.Enqueue(outbox.Message{Topic: "orders"})[0]
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the commit
		_, err = f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "orders"})
		f.NoError(err)
		_, err = f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "orders", ID: taken})
		f.Error(err)
		f.NoError(tx.Commit())
		f.Equal(2, f.Count())
	})
}

func TestOBX004_AnEmptyTopicIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "fine"}, outbox.Message{Payload: []byte("x")})
		f.RequireField(err, "Topic")
		f.Equal(0, f.Count(), "nothing is written if one message is not valid")
	})
}

func TestOBX005_ANilPayloadIsStoredAsZeroBytes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue(outbox.Message{Topic: "orders"}, outbox.Message{Topic: "orders", Payload: []byte{}})
		f.Equal(int64(2), f.Number("SELECT COUNT(*) FROM {all} WHERE {payload} IS NOT NULL"))
		claimed := f.Claim("orders")
		f.Len(claimed, 2)
		for _, c := range claimed {
			f.Empty(c.Payload)
		}
	})
}

func TestOBX006_AMessageIsNotClaimedBeforeItsDueTime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		due := f.Now().Add(time.Hour)
		ids := f.Enqueue(
			outbox.Message{Topic: "orders", DueAt: due},
			outbox.Message{Topic: "orders", Delay: time.Hour},
			outbox.Message{Topic: "orders", DueAt: due.In(time.FixedZone("", 5*3600))},
		)
		f.Empty(f.Claim("orders"))
		f.SameTime(due, f.Row(ids[0]).Due)
		f.SameTime(due, f.Row(ids[0]).NextAttempt)
		f.WithinDuration(due, f.Row(ids[1]).Due, time.Minute)
		f.SameTime(due, f.Row(ids[2]).Due)

		// When the time has come they are claimed.
		f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {past}")
		claimed := f.Claim("orders")
		f.ElementsMatch(ids, suite.MessageIDs(claimed))
		f.SameTime(due, claimed[0].DueAt)
	})
}

func TestOBX007_WithoutADueTimeOrWithAPastOneItIsDueAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		before := f.Now()
		ids := f.Enqueue(
			outbox.Message{Topic: "orders"},
			outbox.Message{Topic: "orders", DueAt: before.Add(-time.Hour)},
			outbox.Message{Topic: "orders", DueAt: time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC)},
		)
		f.Len(f.Claim("orders"), 3)
		f.True(f.Row(ids[0]).Due.IsZero())
		f.SameTime(before.Add(-time.Hour), f.Row(ids[1]).Due)
		f.False(f.Row(ids[1]).NextAttempt.Before(before), "an old due time does not jump the queue")
	})
}

func TestOBX008_EachMessageGetsItsOwnWorkItemID(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.EnqueueN("orders", 1100)
		ids = append(ids, f.EnqueueN("orders", 3)...)
		rows := f.Rows("1 = 1")
		f.Len(rows, 1103)
		seen := map[outbox.MessageID]bool{}
		for i, r := range rows {
			f.Equal(ids[i], r.ID, "the numbers grow in the order of the messages")
			f.False(seen[r.ID])
			seen[r.ID] = true
			if i > 0 {
				f.Greater(r.Seq, rows[i-1].Seq)
			}
		}

		// A number is never used again, not even that of the last row.
		last := rows[len(rows)-1].Seq
		f.Clear()
		f.EnqueueN("orders", 1)
		f.Greater(f.Rows("1 = 1")[0].Seq, last)
	})
}

func TestOBX009_CreatedAtIsTheDatabasesTime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		before := f.Now()
		id := f.EnqueueN("orders", 1)[0]
		after := f.Now()
		created := f.Row(id).Created
		f.False(created.Before(before), "%v is before %v", created, before)
		f.False(created.After(after), "%v is after %v", created, after)
		claimed := f.Claim("orders")
		f.WithinDuration(created, claimed[0].CreatedAt, time.Millisecond)
		f.Equal(time.UTC, claimed[0].CreatedAt.Location())
	})
}

func TestOBX009_AStatementInALongTransactionHasTheTimeOfTheStatement(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			var begun int64
			f.NoError(tx.QueryRowContext(ctx, f.SQL("SELECT {now_ms}")).Scan(&begun))
			f.Eventually(func() bool { // its clock goes on in the transaction
				var now int64
				err := tx.QueryRowContext(ctx, f.SQL("SELECT {now_ms}")).Scan(&now)
				return err == nil && now > begun+5
			}, 10*time.Second, time.Millisecond)
			_, err := f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
			f.NoError(err)
			var late int
			f.NoError(tx.QueryRowContext(ctx, f.SQL("SELECT COUNT(*) FROM {all} WHERE %s > %d", f.Millis("created_at"), begun+4)).Scan(&late))
			f.Equal(1, late)
			return nil
		}))
	})
}

func TestOBX010_ANewMessageHasSpentNothingAndIsNotProcessed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id := f.EnqueueN("orders", 1)[0]
		r := f.Row(id)
		f.Equal(int(outbox.Ready), r.Status)
		f.Equal(0, r.Retries)
		f.False(r.HasOwner || r.HasLease || r.HasEnd || r.HasError || r.HasProcessedBy)
		records, err := f.Outbox.Get(f.Context(), id)
		f.NoError(err)
		f.False(records[0].Status == outbox.Done)
		f.Equal(outbox.Ready, records[0].Status)
		claimed := f.Claim("orders")
		f.Equal(0, claimed[0].RetryCount)
	})
}

func TestEnqueueAnswersWithTheIDsOfItsMessages(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		own, err := base.ParseMessageID("0190163d-8694-739b-aea5-966c26f8ad91")
		f.NoError(err)
		ids := f.Enqueue(outbox.Message{Topic: "orders", UUID: "a"}, outbox.Message{Topic: "orders", UUID: "b", ID: own})
		f.Equal(own, ids[1])
		for i, c := range f.Claim("orders") {
			f.Equal(ids[i], c.ID)
			f.Equal([]string{"a", "b"}[i], c.UUID)
		}

		none, err := f.Outbox.Enqueue(f.Context(), f.DB.DB)
		f.NoError(err)
		f.Empty(none)
	})
}

func TestEnqueueRefusesHandlesThatAreNil(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for name, x := range map[string]outbox.Executor{
			"nothing": nil, "a nil pool": (*sql.DB)(nil), "a nil transaction": (*sql.Tx)(nil), "a nil connection": (*sql.Conn)(nil),
		} {
			_, err := f.Outbox.Enqueue(f.Context(), x, outbox.Message{Topic: "orders"})
			f.ErrorIs(err, base.ErrNilDB, name)
			_, err = f.Outbox.Settle(f.Context(), x, []outbox.Settlement{{}})
			f.ErrorIs(err, base.ErrNilDB, name)
		}
		_, err := outbox.New(nil, f.Config, nil)
		f.ErrorIs(err, base.ErrNilDB)
		f.ErrorIs(outbox.Migrate(f.Context(), nil, f.MigrateConfig()), base.ErrNilDB)
		f.ErrorIs(outbox.InTx(f.Context(), nil, nil), base.ErrNilDB)
	})
}

func TestHandlesThatAreClosedSaySo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		closed := f.DB.Reopen(t)
		f.NoError(closed.Close())
		_, err := f.NewOutbox(closed.DB).Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.Error(err)
		_, err = f.Outbox.Enqueue(f.Context(), closed.DB, outbox.Message{Topic: "orders"})
		f.Error(err)

		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		f.NoError(tx.Rollback())
		_, err = f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "orders"})
		f.ErrorIs(err, sql.ErrTxDone)
		f.Equal(0, f.Count())
	})
}

func TestInTxRollsBackOnErrorAndPanic(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		failure := errors.New("the order is not valid")
		err := outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
			return errors.Join(err, failure)
		})
		f.ErrorIs(err, failure)
		require.Panics(t, func() {
			_ = outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
				f.NoError(err)
				panic("a bug")
			})
		})
		f.Equal(0, f.Count())
	})
}
