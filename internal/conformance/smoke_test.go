package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/stretchr/testify/require"
)

func dialectOf(name string) outbox.Dialect {
	switch name {
	case "postgres":
		return outbox.Postgres{}
	case "sqlserver":
		return outbox.SQLServer{}
	}
	return outbox.SQLite{}
}

func TestSmoke(t *testing.T) {
	testdb.ForEach(t, func(t *testing.T, db *testdb.DB) {
		ctx := context.Background()
		d := dialectOf(db.Name)
		require.NoError(t, outbox.Migrate(ctx, db.DB, outbox.MigrateConfig{Dialect: d, Schema: db.Schema}))
		require.NoError(t, outbox.Migrate(ctx, db.DB, outbox.MigrateConfig{Dialect: d, Schema: db.Schema}))
		o, err := outbox.New(db.DB, outbox.Config{Dialect: d, Schema: db.Schema}, nil)
		require.NoError(t, err)
		ids, err := o.Enqueue(ctx, db.DB, outbox.Message{UUID: "1", Topic: "a", Payload: []byte("hé\x00llo"), Headers: map[string]string{"k": "v<😀"}, CorrelationID: "c"},
			outbox.Message{UUID: "2", Topic: "b"}, outbox.Message{UUID: "3", Topic: "a", Delay: time.Hour}, outbox.Message{UUID: "4", Topic: "a", DueAt: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		require.Len(t, ids, 4)
		topics, err := o.Topics(ctx)
		require.NoError(t, err)
		t.Log(topics)
		c, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "a"}, {Topic: "b"}}})
		require.NoError(t, err)
		require.Len(t, c, 2)
		require.Equal(t, "hé\x00llo", string(c[0].Payload))
		require.Equal(t, "v<😀", c[0].Headers["k"])
		require.Equal(t, ids[0], c[0].ID)
		refused, err := o.Settle(ctx, db.DB, []outbox.Settlement{{Receipt: c[0].Receipt, Outcome: outbox.Retry, Err: errors.New("x")},
			{Receipt: outbox.Receipt{Seq: c[0].Receipt.Seq, Owner: outbox.NewOwnerToken()}}, {Receipt: c[1].Receipt, Outcome: outbox.Ack}})
		require.NoError(t, err)
		require.Equal(t, []outbox.WorkItemID{c[0].Receipt.Seq}, refused)
		rec, err := o.Get(ctx, ids...)
		require.NoError(t, err)
		require.Len(t, rec, 4)
		for _, r := range rec {
			t.Logf("%+v", r)
		}
		ref, err := o.Renew(ctx, time.Minute, c[0].Receipt)
		require.NoError(t, err)
		require.Len(t, ref, 1)
		n, err := o.Purge(ctx, outbox.PurgeParams{})
		require.NoError(t, err)
		t.Log(n)
		n, err = o.Requeue(ctx, outbox.RequeueParams{Topic: "a", IDs: ids})
		require.NoError(t, err)
		t.Log(n)
		n, err = o.ReapExpired(ctx)
		require.NoError(t, err)
		t.Log(n)
	})
}
