package conformance

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/faults"
)

func TestOBX001_EnqueueStoresDurably(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.enqueue(outbox.Message{
			UUID: "a free text", Topic: "orders", Payload: []byte("\x00\xffbytes"), Headers: map[string]string{"k": "v"},
			CorrelationID: "cause", StreamKey: "order-1",
		})

		// Another pool sees it: it is in the database and not in a connection of ours.
		again := f.newOutbox(f.db.Reopen(t).DB)
		records, err := again.Get(f.ctx(), ids...)
		f.NoError(err)
		f.Len(records, 1)
		f.Equal(ids[0], records[0].ID)
		f.Equal("a free text", records[0].UUID)
		f.Equal("orders", records[0].Topic)
		f.Equal([]byte("\x00\xffbytes"), records[0].Payload)
		f.Equal(map[string]string{"k": "v"}, records[0].Headers)
		f.Equal("cause", records[0].CorrelationID)
		f.Equal("order-1", records[0].StreamKey)
		f.Equal(int64(1), f.number("SELECT COUNT(*) FROM {all} WHERE {topic} = 'orders' AND {uuid} = 'a free text'"))
	})
}

func TestOBX002_EnqueueAloneIsOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		taken := f.enqueue(outbox.Message{Topic: "orders"})[0]

		// 1,500 messages take several statements; the last of them is refused, so none may be there.
		messages := make([]outbox.Message, 1500)
		for i := range messages {
			messages[i].Topic = "orders"
		}
		messages[len(messages)-1].ID = taken
		_, err := f.outbox.Enqueue(f.ctx(), f.db.DB, messages...)
		f.Error(err)
		f.Equal(1, f.count())

		messages[len(messages)-1].ID = outbox.MessageID{}
		ids, err := f.outbox.Enqueue(f.ctx(), f.db.DB, messages...)
		f.NoError(err)
		f.Len(ids, 1500)
		f.Equal(1501, f.count())
	})
}

func TestOBX003_EnqueueJoinsTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		log := &faults.Log{}
		pool := faults.Open(t, f.db, log.Hooks())

		for _, end := range []string{"rollback", "commit"} {
			tx, err := pool.BeginTx(f.ctx(), nil)
			f.NoError(err)
			log.Take()
			for range 2 {
				_, err = f.outbox.Enqueue(f.ctx(), tx, outbox.Message{Topic: end})
				f.NoError(err)
			}
			for _, s := range log.Take() {
				f.NotContains([]string{faults.Begin, faults.Commit, faults.Rollback}, s.Text)
			}
			var inside int
			f.NoError(tx.QueryRowContext(f.ctx(), f.sql("SELECT COUNT(*) FROM {all}")).Scan(&inside))
			f.Equal(2, inside, "the transaction is still open and has the rows")
			if end == "rollback" {
				f.NoError(tx.Rollback())
				f.Equal(0, f.count())
			} else {
				f.NoError(tx.Commit())
				f.Equal(2, f.count())
			}
		}
	})
}

func TestOBX003_EnqueueJoinsTheTransactionOfAConnection(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		conn, err := f.db.Conn(f.ctx())
		f.NoError(err)
		defer func() { f.NoError(conn.Close()) }()
		for _, end := range []string{"ROLLBACK", "COMMIT"} {
			f.execOn(conn, "%s", f.config.Dialect.Traits().Begin)
			_, err = f.outbox.Enqueue(f.ctx(), conn, outbox.Message{Topic: end})
			f.NoError(err)
			f.execOn(conn, "%s", end)
		}
		f.Equal(1, f.count())
		f.Len(f.claim("COMMIT"), 1)
	})
}

func TestOBX003_AFailedEnqueueLeavesTheTransactionToItsOwner(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(usableAfterError)
		taken := f.enqueue(outbox.Message{Topic: "orders"})[0]
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the commit
		_, err = f.outbox.Enqueue(f.ctx(), tx, outbox.Message{Topic: "orders"})
		f.NoError(err)
		_, err = f.outbox.Enqueue(f.ctx(), tx, outbox.Message{Topic: "orders", ID: taken})
		f.Error(err)
		f.NoError(tx.Commit())
		f.Equal(2, f.count())
	})
}

func TestOBX004_AnEmptyTopicIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		_, err := f.outbox.Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "fine"}, outbox.Message{Payload: []byte("x")})
		f.requireField(err, "Topic")
		f.Equal(0, f.count(), "nothing is written if one message is not valid")
	})
}

func TestOBX005_ANilPayloadIsStoredAsZeroBytes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueue(outbox.Message{Topic: "orders"}, outbox.Message{Topic: "orders", Payload: []byte{}})
		f.Equal(int64(2), f.number("SELECT COUNT(*) FROM {all} WHERE {payload} IS NOT NULL"))
		claimed := f.claim("orders")
		f.Len(claimed, 2)
		for _, c := range claimed {
			f.Empty(c.Payload)
		}
	})
}

func TestOBX006_AMessageIsNotClaimedBeforeItsDueTime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		due := f.now().Add(time.Hour)
		ids := f.enqueue(
			outbox.Message{Topic: "orders", DueAt: due},
			outbox.Message{Topic: "orders", Delay: time.Hour},
			outbox.Message{Topic: "orders", DueAt: due.In(time.FixedZone("", 5*3600))},
		)
		f.Empty(f.claim("orders"))
		f.sameTime(due, f.row(ids[0]).due)
		f.sameTime(due, f.row(ids[0]).nextAttempt)
		f.WithinDuration(due, f.row(ids[1]).due, time.Minute)
		f.sameTime(due, f.row(ids[2]).due)

		// When the time has come they are claimed.
		f.exec("UPDATE {outbox_state} SET {next_attempt_at} = {past}")
		claimed := f.claim("orders")
		f.ElementsMatch(ids, messageIDs(claimed))
		f.sameTime(due, claimed[0].DueAt)
	})
}

func TestOBX007_WithoutADueTimeOrWithAPastOneItIsDueAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		before := f.now()
		ids := f.enqueue(
			outbox.Message{Topic: "orders"},
			outbox.Message{Topic: "orders", DueAt: before.Add(-time.Hour)},
			outbox.Message{Topic: "orders", DueAt: time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC)},
		)
		f.Len(f.claim("orders"), 3)
		f.True(f.row(ids[0]).due.IsZero())
		f.sameTime(before.Add(-time.Hour), f.row(ids[1]).due)
		f.False(f.row(ids[1]).nextAttempt.Before(before), "an old due time does not jump the queue")
	})
}

func TestOBX008_EachMessageGetsItsOwnWorkItemID(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.enqueueN("orders", 1100)
		ids = append(ids, f.enqueueN("orders", 3)...)
		rows := f.rows("1 = 1")
		f.Len(rows, 1103)
		seen := map[outbox.MessageID]bool{}
		for i, r := range rows {
			f.Equal(ids[i], r.id, "the numbers grow in the order of the messages")
			f.False(seen[r.id])
			seen[r.id] = true
			if i > 0 {
				f.Greater(r.seq, rows[i-1].seq)
			}
		}

		// A number is never used again, not even that of the last row.
		last := rows[len(rows)-1].seq
		f.clear()
		f.enqueueN("orders", 1)
		f.Greater(f.rows("1 = 1")[0].seq, last)
	})
}

func TestOBX009_CreatedAtIsTheDatabasesTime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		before := f.now()
		id := f.enqueueN("orders", 1)[0]
		after := f.now()
		created := f.row(id).created
		f.False(created.Before(before), "%v is before %v", created, before)
		f.False(created.After(after), "%v is after %v", created, after)
		claimed := f.claim("orders")
		f.WithinDuration(created, claimed[0].CreatedAt, time.Millisecond)
		f.Equal(time.UTC, claimed[0].CreatedAt.Location())
	})
}

func TestOBX009_AStatementInALongTransactionHasTheTimeOfTheStatement(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			var begun int64
			f.NoError(tx.QueryRowContext(ctx, f.sql("SELECT {now_ms}")).Scan(&begun))
			f.Eventually(func() bool { // its clock goes on in the transaction
				var now int64
				err := tx.QueryRowContext(ctx, f.sql("SELECT {now_ms}")).Scan(&now)
				return err == nil && now > begun+5
			}, 10*time.Second, time.Millisecond)
			_, err := f.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
			f.NoError(err)
			var late int
			f.NoError(tx.QueryRowContext(ctx, f.sql("SELECT COUNT(*) FROM {all} WHERE %s > %d", f.millis("created_at"), begun+4)).Scan(&late))
			f.Equal(1, late)
			return nil
		}))
	})
}

func TestOBX010_ANewMessageHasSpentNothingAndIsNotProcessed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id := f.enqueueN("orders", 1)[0]
		r := f.row(id)
		f.Equal(int(outbox.Ready), r.status)
		f.Equal(0, r.retries)
		f.False(r.hasOwner || r.hasLease || r.hasEnd || r.hasError || r.hasProcessedBy)
		records, err := f.outbox.Get(f.ctx(), id)
		f.NoError(err)
		f.False(records[0].Status == outbox.Done)
		f.Equal(outbox.Ready, records[0].Status)
		claimed := f.claim("orders")
		f.Equal(0, claimed[0].RetryCount)
	})
}

func TestEnqueueAnswersWithTheIDsOfItsMessages(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		own, err := base.ParseMessageID("0190163d-8694-739b-aea5-966c26f8ad91")
		f.NoError(err)
		ids := f.enqueue(outbox.Message{Topic: "orders", UUID: "a"}, outbox.Message{Topic: "orders", UUID: "b", ID: own})
		f.Equal(own, ids[1])
		for i, c := range f.claim("orders") {
			f.Equal(ids[i], c.ID)
			f.Equal([]string{"a", "b"}[i], c.UUID)
		}

		none, err := f.outbox.Enqueue(f.ctx(), f.db.DB)
		f.NoError(err)
		f.Empty(none)
	})
}

func TestEnqueueRefusesHandlesThatAreNil(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for name, x := range map[string]outbox.Executor{
			"nothing": nil, "a nil pool": (*sql.DB)(nil), "a nil transaction": (*sql.Tx)(nil), "a nil connection": (*sql.Conn)(nil),
		} {
			_, err := f.outbox.Enqueue(f.ctx(), x, outbox.Message{Topic: "orders"})
			f.ErrorIs(err, base.ErrNilDB, name)
			_, err = f.outbox.Settle(f.ctx(), x, []outbox.Settlement{{}})
			f.ErrorIs(err, base.ErrNilDB, name)
		}
		_, err := outbox.New(nil, f.config, nil)
		f.ErrorIs(err, base.ErrNilDB)
		f.ErrorIs(outbox.Migrate(f.ctx(), nil, f.migrateConfig()), base.ErrNilDB)
		f.ErrorIs(outbox.InTx(f.ctx(), nil, nil), base.ErrNilDB)
	})
}

func TestHandlesThatAreClosedSaySo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		closed := f.db.Reopen(t)
		f.NoError(closed.Close())
		_, err := f.newOutbox(closed.DB).Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders")})
		f.Error(err)
		_, err = f.outbox.Enqueue(f.ctx(), closed.DB, outbox.Message{Topic: "orders"})
		f.Error(err)

		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		f.NoError(tx.Rollback())
		_, err = f.outbox.Enqueue(f.ctx(), tx, outbox.Message{Topic: "orders"})
		f.ErrorIs(err, sql.ErrTxDone)
		f.Equal(0, f.count())
	})
}

func TestInTxRollsBackOnErrorAndPanic(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		failure := errors.New("the order is not valid")
		err := outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
			return errors.Join(err, failure)
		})
		f.ErrorIs(err, failure)
		require.Panics(t, func() {
			_ = outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := f.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
				f.NoError(err)
				panic("a bug")
			})
		})
		f.Equal(0, f.count())
	})
}
