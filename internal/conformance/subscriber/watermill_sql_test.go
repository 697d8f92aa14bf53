package subscriber_test

import (
	"testing"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/watermillsql"
)

// watermill-sql's own Publisher and Subscriber, on our adapters, in Watermill's own suite.
func TestWatermillSQLOnSQLServer(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.SQLServer {
			f.Skip("SQL Server", "watermill-sql has adapters of its own for other databases")
		}
		f.Sequencer()
		tests.TestPubSub(t, tests.Features{ConsumerGroups: true, GuaranteedOrder: true, Persistent: true},
			func(t *testing.T) (message.Publisher, message.Subscriber) { return f.watermillSQL(t, "default") },
			f.watermillSQL)
	})
}

func (f *fixture) watermillSQL(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	config := watermillsql.Config{Schema: f.Config.Schema, Table: f.Config.Table}
	schema, err := watermillsql.NewSchemaAdapter(config)
	require.NoError(t, err)
	offsets, err := watermillsql.NewOffsetsAdapter(config)
	require.NoError(t, err)
	reading := f.DB.Reopen(t)
	reading.SetMaxOpenConns(60) // a subscription holds a transaction, and so a connection
	p, err := wmsql.NewPublisher(f.DB.DB, wmsql.PublisherConfig{SchemaAdapter: schema}, nil)
	require.NoError(t, err)
	s, err := wmsql.NewSubscriber(reading.DB, wmsql.SubscriberConfig{
		ConsumerGroup: group, SchemaAdapter: schema, OffsetsAdapter: offsets,
		PollInterval: 10 * time.Millisecond, ResendInterval: 5 * time.Millisecond, RetryInterval: 10 * time.Millisecond,
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) }) // the suite forgets some
	return p, s
}
