package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// What a user of the database needs, and what the library does to connect.

func TestOBX117_118_TheRoleSufficesAndAllowsNoMore(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.needs(executeAs)
		// Roles are the whole server's: the table's name makes this one's unique.
		f.config.Table = "box_" + f.config.Schema
		f.outbox = f.newOutbox(f.db.DB)
		f.migrate()
		script, err := outbox.RoleSQL(f.migrateConfig())
		f.NoError(err)
		role := f.schema() + "_" + f.config.Table + map[string]string{testdb.Postgres: "_role", testdb.SQLServer: "_Role"}[f.db.Name]
		f.NoError(f.run(script))
		f.NoError(f.run(script), "it is idempotent")
		member, stranger := f.user(role), f.user("")
		t.Cleanup(func() {
			if f.db.Name == testdb.Postgres {
				f.drop("DROP OWNED BY " + role)
			}
			f.drop("DROP ROLE " + role)
		})
		f.exec("CREATE TABLE %s (n INT NOT NULL)", f.object("accounts"))

		f.Empty(f.lacksRightTo(member, f.everyCall()...))
		f.NotEmpty(f.rows("1 = 1"))
		denied := []string{
			"DROP TABLE {outbox}", "ALTER TABLE {outbox} ADD n INT", "SELECT COUNT(*) FROM " + f.object("accounts"),
			"CREATE TABLE " + f.object("mine") + " (n INT NOT NULL)", "DELETE FROM " + f.history(),
		}
		f.Len(f.lacksRightTo(member, denied...), len(denied))
		f.Len(f.lacksRightTo(stranger, f.everyCall()...), len(f.everyCall()), "without the role nothing is allowed")
	})
}

func (f *fixture) history() string {
	return f.object(f.config.Dialect.Traits().Table + map[string]string{testdb.Postgres: "_migrations", testdb.SQLServer: "_Migrations"}[f.db.Name])
}

// user creates a user without login, in a role if one is given, until the test ends.
func (f *fixture) user(role string) string {
	f.t.Helper()
	name := fmt.Sprintf("user_%s_%d", f.db.Schema, len(role))
	create, grant, revoke := "CREATE ROLE "+name, "GRANT "+role+" TO "+name, "DROP ROLE "+name
	if f.db.Name == testdb.SQLServer {
		create, grant, revoke = "CREATE USER "+name+" WITHOUT LOGIN", "ALTER ROLE "+role+" ADD MEMBER "+name, "DROP USER "+name
	}
	f.exec("%s", create)
	if role != "" {
		f.exec("%s", grant)
	}
	f.t.Cleanup(func() { f.drop(revoke) })
	return name
}

// everyCall calls each procedure and looks at the view.
func (f *fixture) everyCall() (calls []string) {
	const owner = "00000000-0000-4000-8000-000000000001"
	arguments := map[string]string{
		"claim":  `{"owner":"` + owner + `","lease_ms":60000,"limit":4,"give_back":1,"worker":"w","topics":[{"key":` + fmt.Sprint(testdb.TopicKey("orders")) + `,"quota":10}]}`,
		"settle": `{"worker":"w","backoff_ms":1,"backoff_max_ms":1,"delete_acked":false,"groups":[{"owner":"` + owner + `","outcome":0,"seqs":[1]}]}`,
		"renew":  `{"lease_ms":1000,"groups":[{"owner":"` + owner + `","seqs":[1]}]}`,
		"reap":   `{"limit":1}`, "requeue": `{"limit":1}`, "failed": `{"limit":1}`, "topics": `{"limit":1}`,
		"purge": `{"status":2,"older_than_ms":3600000,"limit":1}`, "get": `{"ids":["` + owner + `"]}`,
	}
	enqueued := `[{"n":0,"id":"%s","uuid":"","topic":"orders","topic_key":1,"at":0,"size":0,"headers":{}}]`
	id, err := f.config.Dialect.Traits().NewMessageID()
	f.NoError(err)
	enqueued = fmt.Sprintf(enqueued, id)
	if f.db.Name == testdb.SQLServer {
		calls = append(calls, "EXEC "+f.object("Outbox_enqueue")+" N'"+enqueued+"', 0x", "SELECT COUNT(*) FROM "+f.object("Outbox_View"))
		for name, argument := range arguments {
			calls = append(calls, "EXEC "+f.object("Outbox_"+name)+" N'"+argument+"'")
		}
		for _, name := range []string{"ack", "abandon", "fail"} {
			calls = append(calls, "EXEC "+f.object("Outbox_"+name)+" '"+owner+"', N'[1]'")
		}
		return calls
	}
	calls = append(calls, "SELECT FROM "+f.object("outbox_log_enqueue")+"('"+enqueued+"', '')", "SELECT COUNT(*) FROM "+f.object("outbox_view"),
		"SELECT payload_text FROM "+f.object("outbox_view"))
	for name, argument := range arguments {
		calls = append(calls, "SELECT * FROM "+f.object("outbox_"+name)+"('"+argument+"')")
	}
	for _, name := range []string{"ack", "abandon", "fail"} {
		calls = append(calls, "SELECT * FROM "+f.object("outbox_"+name)+"('"+owner+"', '[1]')")
	}
	return calls
}

// lacksRightTo runs statements as a user and returns those that are refused.
func (f *fixture) lacksRightTo(user string, statements ...string) (refused []string) {
	f.t.Helper()
	conn, err := f.db.Reopen(f.t).Conn(f.ctx())
	f.NoError(err)
	defer func() { f.NoError(conn.Close()) }()
	become, back := "SET ROLE "+user, "RESET ROLE"
	if f.db.Name == testdb.SQLServer {
		become, back = "EXECUTE AS USER = '"+user+"'", "REVERT"
	}
	f.execOn(conn, "%s", become)
	for _, statement := range statements {
		err := f.readToTheEnd(conn, f.sql("%s", strings.ReplaceAll(statement, "{outbox}", f.sql("{outbox}"))))
		if err == nil {
			continue
		}
		var state interface{ SQLState() string }
		if errors.As(err, &state) {
			f.Equal("42501", state.SQLState(), "%s: %v", statement, err)
		}
		refused = append(refused, fmt.Sprintf("%s: %v", statement, err))
	}
	f.execOn(conn, "%s", back)
	return refused
}

func (f *fixture) readToTheEnd(x outbox.Executor, statement string) (err error) {
	rows, err := x.QueryContext(f.ctx(), statement)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() { // what it answers does not matter
	}
	return rows.Err()
}

// The library never connects by itself: it uses the handle that it was given, whose driver has been configured by its
// owner, encryption included. There is nothing of a connection in its configuration.
func TestOBX120_TheConnectionIsTheCallers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		log := &faults.Log{}
		pool := faults.Open(t, f.db, log.Hooks()) // by a connector that no DSN leads to
		o := f.newOutbox(pool)
		s := f.subscriberOn(pool, nil)
		messages := f.subscribe(s, "orders")
		_, err := o.Enqueue(f.ctx(), pool, outbox.Message{Topic: "orders"})
		f.NoError(err)
		f.receive(messages).Ack()
		f.NoError(s.Close())
		f.NotEmpty(log.Take())
		f.Zero(pool.Stats().InUse)
		f.NoError(pool.PingContext(f.ctx()), "it stays open: it is the caller's")

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
		f.needs(encryption)
		pool, err := sql.Open(f.db.DriverName, encrypted(f.db))
		f.NoError(err)
		defer func() { f.NoError(pool.Close()) }()
		o := f.newOutbox(pool)
		_, err = o.Enqueue(f.ctx(), pool, outbox.Message{Topic: "orders"})
		f.NoError(err)
		claimed, err := o.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders")})
		f.NoError(err)
		f.Len(claimed, 1)
	})
}

// encryption: the server offers it.
var encryption = &capability{"encrypted connections", func(ctx context.Context, db *testdb.DB) (string, error) {
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
}}

// encrypted is the DSN of a connection that must be encrypted, by any certificate.
func encrypted(db *testdb.DB) string {
	return strings.NewReplacer("sslmode=disable", "sslmode=require", "encrypt=disable", "encrypt=true&TrustServerCertificate=true").Replace(db.DSN)
}
