package kept_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// Whatever an outbox does for a message, on a pool, on a connection or in a transaction, is compiled once a connection.
func TestAnOutboxIsCompiledOnceAConnection(t *testing.T) {
	c := newCounter()
	db := c.openFile(t, 3)
	ctx := t.Context()
	require.NoError(t, outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}))
	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}, Log: outbox.QueueAndLog}, nil)
	require.NoError(t, err)
	joins, err := join.NewCoordinator(db, join.Config{Dialect: outbox.SQLite{}}, nil)
	require.NoError(t, err)
	c.reset()

	const rounds = 20
	for i := range rounds {
		everyWay(t, db, func(x outbox.Executor) {
			_, err := o.Enqueue(ctx, x, outbox.Message{UUID: fmt.Sprint(i), Topic: "t", Payload: []byte("payload")})
			require.NoError(t, err)
		})
		id, err := joins.Start(ctx, db, join.StartParams{ExpectedSteps: 1})
		require.NoError(t, err)
		_, err = joins.Enqueue(ctx, db, id, outbox.Message{UUID: "step", Topic: "t"})
		require.NoError(t, err)
		claimed, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "t"}}})
		require.NoError(t, err)
		require.Len(t, claimed, 4)
		for _, m := range claimed {
			_, err := o.Renew(ctx, time.Minute, m.Receipt)
			require.NoError(t, err)
		}
		everyWay(t, db, func(x outbox.Executor) {
			refused, err := o.Settle(ctx, x, []outbox.Settlement{{Receipt: claimed[0].Receipt, Outcome: outbox.Ack}})
			require.NoError(t, err)
			require.Empty(t, refused)
			claimed = claimed[1:]
		})
		_, err = o.Settle(ctx, db, []outbox.Settlement{{Receipt: claimed[0].Receipt, Outcome: outbox.Ack}})
		require.NoError(t, err)
	}
	compiled, direct := c.counts()
	require.Greater(t, len(compiled), 15)
	for text, n := range compiled {
		require.Equal(t, 1, n, text)
		require.Equal(t, strings.TrimRight(text, "; \n"), text, "the driver keeps it only with nothing behind it")
	}
	require.Empty(t, direct)
}

// everyWay runs f on the pool, on a connection and in a transaction.
func everyWay(t *testing.T, db *sql.DB, f func(x outbox.Executor)) {
	t.Helper()
	f(db)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	f(conn)
	require.NoError(t, conn.Close())
	require.NoError(t, outbox.InTx(t.Context(), db, func(_ context.Context, tx *sql.Tx) error {
		f(tx)
		return nil
	}))
}

// Migrate changes the schema under workers that have their statements compiled.
func TestMigrateUnderStatementsThatAreKept(t *testing.T) {
	c := newCounter()
	db := c.openFile(t, 3)
	ctx := t.Context()
	config := outbox.MigrateConfig{Dialect: outbox.SQLite{}, WithoutJoins: true}
	require.NoError(t, outbox.Migrate(ctx, db, config))
	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	require.NoError(t, err)
	deliver := func() {
		_, err := o.Enqueue(ctx, db, outbox.Message{UUID: "1", Topic: "t"})
		require.NoError(t, err)
		claimed, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "t"}}})
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		require.NoError(t, o.Ack(ctx, claimed[0].Receipt.Owner, claimed[0].Receipt.Seq))
	}
	deliver()
	config.WithoutJoins = false
	require.NoError(t, outbox.Migrate(ctx, db, config), "with joins")
	deliver()
	for _, kind := range []string{"VIEW", "TRIGGER", "INDEX"} {
		for _, name := range objects(t, db, strings.ToLower(kind)) {
			_, err := db.ExecContext(ctx, "DROP "+kind+" "+outbox.SQLite{}.Quote(name))
			require.NoError(t, err)
		}
	}
	require.NoError(t, outbox.Migrate(ctx, db, config), "what was dropped comes back")
	deliver()
}

// objects are the names of what there is of a kind, but for what SQLite makes by itself.
func objects(t *testing.T, db *sql.DB, kind string) (names []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT name FROM sqlite_schema WHERE type = ? AND sql IS NOT NULL", kind)
	require.NoError(t, err)
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	return names
}
