package schema_test

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// What a user of the database needs, and what the library does to connect.

func TestOBX117_118_TheRoleSufficesAndAllowsNoMore(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ExecuteAs)
		// Roles are the whole server's: the table's name makes this one's unique.
		f.Config.Table = "box_" + f.Config.Schema
		f.Outbox = f.NewOutbox(f.DB.DB)
		f.Migrate()
		script, err := outbox.RoleSQL(f.MigrateConfig())
		f.NoError(err)
		role := f.Schema() + "_" + f.Config.Table + map[string]string{testdb.Postgres: "_role", testdb.SQLServer: "_Role"}[f.DB.Name]
		f.NoError(f.Run(script))
		f.NoError(f.Run(script), "it is idempotent")
		member, stranger := f.User(role), f.User("")
		t.Cleanup(func() {
			if f.DB.Name == testdb.Postgres {
				f.Drop("DROP OWNED BY " + role)
			}
			f.Drop("DROP ROLE " + role)
		})
		f.Exec("CREATE TABLE %s (n INT NOT NULL)", f.Object("accounts"))

		f.Empty(f.LacksRightTo(member, f.everyCall()...))
		f.NotEmpty(f.Rows("1 = 1"))
		f.Zero(f.open())
		f.Exec(map[string]string{testdb.Postgres: "DROP FUNCTION %s(json)", testdb.SQLServer: "DROP PROCEDURE %s"}[f.DB.Name], f.Object("outbox_story"))
		f.Migrate()
		f.Empty(f.LacksRightTo(member, f.everyCall()...), "a migration that creates all functions again takes no right away")
		f.Equal(map[string]int{testdb.Postgres: 1}[f.DB.Name], f.open(), "and gives none, except to what is new")
		denied := []string{
			"DROP TABLE {outbox}", "ALTER TABLE {outbox} ADD n INT", "SELECT COUNT(*) FROM " + f.Object("accounts"),
			"CREATE TABLE " + f.Object("mine") + " (n INT NOT NULL)", "DELETE FROM " + f.history(),
		}
		f.Len(f.LacksRightTo(member, denied...), len(denied))
		f.Len(f.LacksRightTo(stranger, f.everyCall()...), len(f.everyCall()), "without the role nothing is allowed")
	})
}

// open is how many functions everybody may call.
func (f *fixture) open() (n int) {
	if f.DB.Name == testdb.Postgres {
		f.NoError(f.DB.QueryRowContext(f.Context(), `SELECT count(*) FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
			WHERE p.pronamespace = $1::regnamespace AND a.grantee = 0`, f.Config.Schema).Scan(&n))
	}
	return n
}

func (f *fixture) history() string {
	return f.Object(f.Config.Dialect.Traits().Table + map[string]string{testdb.Postgres: "_migrations", testdb.SQLServer: "_Migrations"}[f.DB.Name])
}

// everyCall calls each procedure and looks at the view.
func (f *fixture) everyCall() (calls []string) {
	const owner = "00000000-0000-4000-8000-000000000001"
	arguments := map[string]string{
		"claim":  `{"owner":"` + owner + `","lease_ms":60000,"limit":4,"give_back":1,"worker":"w","topics":[{"key":` + fmt.Sprint(testdb.TopicKey("orders")) + `,"quota":10}]}`,
		"settle": `{"worker":"w","backoff_ms":1,"backoff_max_ms":1,"delete_acked":false,"groups":[{"owner":"` + owner + `","outcome":0,"seqs":[1]}]}`,
		"renew":  `{"lease_ms":1000,"groups":[{"owner":"` + owner + `","seqs":[1]}]}`,
		"reap":   `{"limit":1}`, "requeue": `{"limit":1}`, "held": `{"owner":"` + owner + `"}`, "failed": `{"limit":1}`, "topics": `{"limit":1}`,
		"purge": `{"status":2,"older_than_ms":3600000,"limit":1}`, "get": `{"ids":["` + owner + `"]}`,
	}
	id, err := f.Config.Dialect.Traits().NewMessageID()
	f.NoError(err)
	if f.DB.Name == testdb.SQLServer {
		enqueued := fmt.Sprintf(`[{"n":0,"id":"%s","uuid":"","topic":"orders","topic_key":1,"at":0,"size":0,"headers":{}}]`, id)
		calls = append(calls, "EXEC "+f.Object("Outbox_enqueue")+" N'"+enqueued+"', 0x", "SELECT COUNT(*) FROM "+f.Object("Outbox_View"))
		for name, argument := range arguments {
			calls = append(calls, "EXEC "+f.Object("Outbox_"+name)+" N'"+argument+"'")
		}
		for _, name := range []string{"ack", "abandon", "fail"} {
			calls = append(calls, "EXEC "+f.Object("Outbox_"+name)+" '"+owner+"', N'[1]'")
		}
		return calls
	}
	calls = append(calls, "WITH added AS (INSERT INTO "+f.Object("outbox")+" (message_id, uuid, topic, topic_key, payload) VALUES ('"+id.String()+"', '', 'orders', 1, '') RETURNING seq) "+
		"INSERT INTO "+f.Object("outbox_state")+" (seq, topic_key, next_attempt_at) SELECT seq, 1, now() FROM added",
		"SELECT COUNT(*) FROM "+f.Object("outbox_view"), "SELECT payload_text FROM "+f.Object("outbox_view"))
	for name, argument := range arguments {
		calls = append(calls, "SELECT * FROM "+f.Object("outbox_"+name)+"('"+argument+"')")
	}
	for _, name := range []string{"ack", "abandon", "fail"} {
		calls = append(calls, "SELECT * FROM "+f.Object("outbox_"+name)+"('"+owner+"', '[1]')")
	}
	return calls
}

// The library never connects by itself: it uses the handle that it was given, whose driver has been configured by its
// owner, encryption included. There is nothing of a connection in its configuration.
func TestOBX120_TheConnectionIsTheCallers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		log := &faults.Log{}
		pool := faults.Open(t, f.DB, log.Hooks()) // by a connector that no DSN leads to
		o := f.NewOutbox(pool)
		s := f.SubscriberOn(pool, nil)
		messages := f.Subscribe(s, "orders")
		_, err := o.Enqueue(f.Context(), pool, outbox.Message{Topic: "orders"})
		f.NoError(err)
		f.Receive(messages).Ack()
		f.NoError(s.Close())
		f.NotEmpty(log.Take())
		f.Zero(pool.Stats().InUse)
		f.NoError(pool.PingContext(f.Context()), "it stays open: it is the caller's")

		for _, config := range []any{outbox.Config{}, outbox.PublisherConfig{}, outbox.SubscriberConfig{}, outbox.MigrateConfig{}} {
			fields := reflect.VisibleFields(reflect.TypeOf(config))
			for _, field := range fields {
				for _, word := range []string{"dsn", "connection", "password", "tls", "url"} {
					f.NotContains(strings.ToLower(field.Name), word)
				}
			}
		}
	})
}

func TestOBX120_AnEncryptedConnection(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(encryption)
		pool, err := sql.Open(f.DB.DriverName, encrypted(f.DB))
		f.NoError(err)
		defer func() { f.NoError(pool.Close()) }()
		o := f.NewOutbox(pool)
		_, err = o.Enqueue(f.Context(), pool, outbox.Message{Topic: "orders"})
		f.NoError(err)
		claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.NoError(err)
		f.Len(claimed, 1)
	})
}

// encryption: the server offers it.
var encryption = suite.NewCapability("encrypted connections", func(ctx context.Context, db *testdb.DB) (string, error) {
	question := map[string]string{
		testdb.Postgres:  "SELECT CASE WHEN ssl THEN 1 ELSE 0 END FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
		testdb.SQLServer: "SELECT CASE encrypt_option WHEN 'TRUE' THEN 1 ELSE 0 END FROM sys.dm_exec_connections WHERE session_id = @@SPID",
	}[db.Name]
	if question == "" {
		return "there is no connection: the database is a file", nil
	}
	pool, err := sql.Open(db.DriverName, encrypted(db))
	if err != nil {
		return "", err
	}
	defer func() { _ = pool.Close() }() // of a probe
	var on int
	if err := pool.QueryRowContext(ctx, question).Scan(&on); err != nil {
		return "the server does not offer them: " + strings.SplitN(err.Error(), "\n", 2)[0], nil
	}
	if on != 1 {
		return "the server says that the connection is not encrypted", nil
	}
	return "", nil
})

// encrypted is the DSN of a connection that must be encrypted, by any certificate.
func encrypted(db *testdb.DB) string {
	return strings.NewReplacer("sslmode=disable", "sslmode=require", "encrypt=disable", "encrypt=true&TrustServerCertificate=true").Replace(db.DSN)
}
