package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// Each kind of trouble, made on purpose, is named, with what to do.
func TestDoctorNamesTrouble(t *testing.T) {
	now := func(shift time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(shift) } }
	for _, trouble := range []struct {
		code string
		says string
		make func(f *fixture)
	}{
		{"newer", "newer version", func(f *fixture) { f.Exec("UPDATE outbox_migrations SET checksum = '999:x' WHERE version = 0") }},
		{"behind", "not those of this version", func(f *fixture) { f.Exec("UPDATE outbox_migrations SET checksum = '0:x' WHERE version = 0") }},
		{"missing", "outbox_log_topic", func(f *fixture) { f.Exec("DROP INDEX outbox_log_topic") }},
		{"setting", "WAL", func(f *fixture) {
			f.dsn = "sqlite:" + filepath.Join(f.T.TempDir(), "a file #1.db") + "?_pragma=journal_mode(DELETE)"
			f.ok("migrate", "up")
		}},
		{"clock", "behind this machine", func(f *fixture) { f.streams.Now = now(time.Hour) }},
		{"clock", "ahead of this machine", func(f *fixture) { f.streams.Now = now(-time.Hour) }},
		{"no-worker", `3 messages of topic "orders" are due`, func(f *fixture) { f.Enqueue("orders", 0, 3) }},
		{"unhandled", `of topic "typo"`, func(f *fixture) {
			f.Enqueue("orders", 0, 1)
			f.claim("orders", 1000, time.Hour)
			f.Enqueue("typo", 1, 1)
		}},
		{"backlog", "do not keep up", func(f *fixture) {
			f.Enqueue("orders", 0, 1)
			f.claim("orders", 1000, time.Hour)
			f.Enqueue("orders", 1, 1)
		}},
		{"expired-leases", "1 lease has expired", func(f *fixture) {
			f.Enqueue("orders", 0, 2)
			f.claim("orders", 1000, time.Millisecond)
		}},
		{"dead-letters", `2 of topic "orders": no such customer`, func(f *fixture) {
			f.Enqueue("orders", 0, 2)
			f.fail("orders", "no such customer")
		}},
		{"blocked-stream", `stream "customer 7" of topic "orders" is blocked`, func(f *fixture) {
			f.publish(outbox.Message{Topic: "orders", StreamKey: "customer 7"})
			f.fail("orders", "refused")
		}},
		{"sequencer", "1 message of the log without a position", func(f *fixture) {
			f.ok("message", "publish", "events", "--payload", "x", "--to", "log")
		}},
		{"group-stopped", `consumer group "mail" of topic "events" has no reader`, (*fixture).fallsBehind},
		{"group-behind", `consumer group "mail" of topic "events" is `, func(f *fixture) {
			f.fallsBehind()
			f.Exec("UPDATE outbox_log_group SET locked_until = 9000000000000")
		}},
		{"group-dead", `consumer group "mail" of topic "events" has given up 1 message`, func(f *fixture) {
			f.fallsBehind()
			f.Exec("INSERT INTO outbox_log_dead (group_name, topic, position, message_id, attempts, failed_at) VALUES ('mail', 'events', 1, 'x', 10, 0)")
		}},
	} {
		t.Run(trouble.code, func(t *testing.T) {
			onSQLite(t, func(_ *testing.T, f *fixture) {
				trouble.make(f)
				f.passes()
				code, out, errOut := f.run("doctor", "--patience", "1ms")
				f.Equal(exitTrouble, code, "%s%s", out, errOut)
				f.Contains(out, trouble.code+": ")
				f.Contains(out, trouble.says)
				f.Empty(errOut)
				for line := range strings.Lines(out) {
					f.NotContains(line, "%!", "a format that does not fit")
				}
			})
		})
	}
}

// Tables of an earlier layout are not sent to migrate up, which refuses them and does not send back.
func TestAnEarlierLayoutHasAWayOut(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		f.dsn = "sqlite:" + filepath.Join(t.TempDir(), "old.db")
		f.ok("migrate", "up")
		f.ok("migrate", "up", "--table", "other")
		db, err := outbox.OpenSQLite("sqlite", "file:"+strings.TrimPrefix(f.dsn, "sqlite:")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate")
		f.NoError(err)
		for _, statement := range []string{
			"ALTER TABLE outbox ADD COLUMN locked_until", "DROP TABLE outbox_audit", "DROP TABLE outbox_log", "DROP TABLE outbox_log_dead",
			"DROP TABLE outbox_log_group", "DROP TABLE outbox_lease", "DROP TABLE outbox_paused",
		} {
			_, err := db.ExecContext(t.Context(), "DROP VIEW IF EXISTS outbox_view; "+statement)
			f.NoError(err, statement)
		}
		f.NoError(db.Close())
		code, out, errOut := f.run("doctor")
		f.Equal(exitTrouble, code, errOut)
		f.Contains(out, `earlier-layout: the table "outbox" is of an earlier layout, with contents and states in one, and cannot be carried over`)
		f.Contains(out, "    have its messages handled, drop its tables and migrate, or install under another Table; see docs/upgrading.md\n")
		f.NotContains(out, "migrate up")
		f.NotContains(out, "setting: ")
		code, _, errOut = f.run("migrate", "up")
		f.Equal(exitTrouble, code)
		f.Contains(errOut, "is of an earlier layout")
		f.NotContains(errOut, "doctor")
		f.NotContains(errOut, "run outbox.Migrate")
		f.NotContains(errOut, "migrate up")
	})
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 3)
		out := f.ok("doctor")
		advice := strings.Count(out, "durability: ")
		end := "All is well.\n"
		if advice > 0 {
			end = "Nothing is wrong; the advice above is yours to weigh.\n"
		}
		f.True(strings.HasSuffix("\n"+out, "\n"+end), "three messages have been due for a moment: %s", out)
		f.Equal(1+2*advice, strings.Count(out, "\n"), out)
		f.Equal(advice, strings.Count(f.ok("doctor", "-o", "json"), `"code":"durability"`))
	})
}

// What may be deliberate is told, and is no trouble.
func TestDoctorAdvisesOnDurability(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		f.dsn = strings.Replace(f.DB.DSN, "(NORMAL)", "(FULL)", 1)
		f.Equal("All is well.\n", f.ok("doctor"))
		f.Empty(f.ok("doctor", "-o", "json"))
		f.dsn = strings.Replace(f.DB.DSN, "(NORMAL)", "(OFF)", 1)
		out := f.ok("doctor")
		f.Contains(out, "durability: synchronous is OFF: the whole file may be damaged")
		f.NotContains(out, "All is well")
	})
}

func TestDoctorOfNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "none.db")
	code, _, errOut := runStreams(t.Context(), Streams{}, "doctor", "--dsn", file)
	if code != exitDatabase || !strings.Contains(errOut, "'outbox migrate up' creates it") {
		t.Fatalf("%d: %s", code, errOut)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := runStreams(t.Context(), Streams{}, "doctor", "--dsn", "sqlite:"+file)
	if code != exitTrouble || !strings.HasPrefix(out, "not-installed: ") || !strings.Contains(out, "outbox migrate up") || errOut != "" {
		t.Fatalf("%d: %s%s", code, out, errOut)
	}
}

// fallsBehind creates a consumer group without a reader, and something for it to read.
func (f *fixture) fallsBehind() {
	config := f.Subscriber()
	config.ConsumerGroup = "mail"
	s, err := outbox.NewSubscriber(f.DB.DB, config, nil)
	f.NoError(err)
	f.NoError(s.SubscribeInitialize("events"))
	f.NoError(s.Close())
	f.Exec("INSERT INTO outbox_log (position, topic, message_id, logged_at) VALUES (1, 'events', 'x', 0)")
}
