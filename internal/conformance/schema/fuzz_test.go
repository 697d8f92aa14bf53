package schema_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// A message that is accepted comes back unchanged. The database is the first one available: SQLite, unless another is asked for.
func FuzzMessagesComeBackAsTheyWere(f *testing.F) {
	f.Add("orders", "1", []byte("payload"), "key", "value", "trace", "stream")
	f.Add("Grüße 🙂", "", []byte{0, 255}, "", "a\x00b", "", "")
	f.Add(`x'; DROP TABLE y; --`, `"`, []byte(nil), `\`, "\u2028", "$1", "?1")
	db, o := suite.Install(f, testdb.Backends(f)[0])
	if why := suite.Lacks(f, db, suite.UnescapesJSON); why != "" {
		f.Skip(why)
	}
	f.Fuzz(func(t *testing.T, topic, uuid string, payload []byte, key, value, correlation, stream string) {
		sent := outbox.Message{Topic: topic, UUID: uuid, Payload: payload, Headers: map[string]string{key: value}, CorrelationID: correlation, StreamKey: stream}
		ids, err := o.Enqueue(t.Context(), db.DB, sent)
		if err != nil {
			var field *outbox.FieldError
			require.ErrorAs(t, err, &field)
			return
		}
		claimed, err := o.Claim(t.Context(), outbox.ClaimParams{Topics: suite.Quotas(topic), Limit: 1})
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		got := claimed[0]
		require.NoError(t, got.Malformed)
		require.Equal(t, string(payload), string(got.Payload))
		sent.ID, sent.Payload, got.Payload = ids[0], nil, nil
		if correlation == "" {
			sent.CorrelationID = sent.Headers["correlation_id"]
		}
		require.Equal(t, sent, got.Message)
		refused, err := o.Settle(t.Context(), db.DB, suite.Settled(outbox.Ack, claimed...))
		require.NoError(t, err)
		require.Empty(t, refused)
	})
}

// No name of a schema or table breaks out of its quotes: the script has the same shape under every name.
func FuzzNamesInScripts(f *testing.F) {
	for _, name := range nastyNames {
		f.Add(name)
	}
	script, err := outbox.RoleSQL(outbox.MigrateConfig{Dialect: outbox.SQLServer{}})
	require.NoError(f, err)
	want := shape(f, script)
	f.Fuzz(func(t *testing.T, name string) {
		script, err := outbox.RoleSQL(outbox.MigrateConfig{Dialect: outbox.SQLServer{}, Schema: name, Table: name})
		if err != nil {
			var field *outbox.FieldError
			require.ErrorAs(t, err, &field)
			return
		}
		require.True(t, reflect.DeepEqual(want, shape(t, script)), script)
	})
}
