package watermillsql_test

import (
	"testing"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/watermillsql"
)

// The conformance suite runs watermill-sql over the adapters on SQL Server; this is what they ask of it.
func TestAdaptersCallTheProceduresOfTheirOutbox(t *testing.T) {
	config := watermillsql.Config{Schema: "shop", Table: "Mail]box", BatchSize: 7}
	schema, err := watermillsql.NewSchemaAdapter(config)
	require.NoError(t, err)
	offsets, err := watermillsql.NewOffsetsAdapter(config)
	require.NoError(t, err)

	msg := message.NewMessage("1", []byte("payload"))
	msg.Metadata.Set("key", "value")
	insert, err := schema.InsertQuery("orders", message.Messages{msg})
	require.NoError(t, err)
	require.Equal(t, "[shop].[Mail]]box_Log_Enqueue]", insert.Query)
	require.Contains(t, insert.Args[0], `"topic":"orders"`)
	require.Contains(t, insert.Args[0], `"headers":{"key":"value"}`)
	require.Equal(t, []byte("payload"), insert.Args[1])

	require.Equal(t, wmsql.Query{Query: "[shop].[Mail]]box_Log_Next]", Args: []any{"group", "orders", 7}},
		schema.SelectQuery("orders", "group", offsets))
	require.Equal(t, []wmsql.Query{{Query: "[shop].[Mail]]box_Log_Begin]", Args: []any{"group", "orders"}}},
		offsets.BeforeSubscribingQueries("orders", "group"))
	require.Equal(t, wmsql.Query{Query: "[shop].[Mail]]box_Log_Advance]", Args: []any{"group", "orders", int64(9)}},
		offsets.AckMessageQuery("orders", wmsql.Row{Offset: 9}, "group"))

	_, err = schema.InsertQuery(" orders", message.Messages{msg})
	var bad *outbox.FieldError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "Topic", bad.Field)
}

func TestABadFieldIsNamed(t *testing.T) {
	for name, config := range map[string]watermillsql.Config{
		"Config.BatchSize": {BatchSize: 1001},
		"Config.Table":     {Table: "Outbox "},
	} {
		_, err := watermillsql.NewSchemaAdapter(config)
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, name, bad.Field)
		_, err = watermillsql.NewOffsetsAdapter(config)
		require.ErrorAs(t, err, &bad)
		require.Equal(t, name, bad.Field)
	}
}
