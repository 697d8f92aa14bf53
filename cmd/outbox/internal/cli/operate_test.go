package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// The new payload comes from the input, and the other headers stay.
func TestEditFromTheInput(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders", Payload: []byte("old"), Headers: map[string]string{"a": "1", "b": "2"}})
		old := f.fail("orders", "broken")[0]
		f.streams.In = strings.NewReader("new\x00bytes")
		f.streams.Env = func(name string) string { return map[string]string{"USER": "alice"}[name] }
		var id outbox.MessageID
		out := f.ok("dead", "edit", old.String(), "--file", "-", "--header", "b=", "--header", "c=3", "-o", "json")
		f.NoError(id.UnmarshalText([]byte(out[len(`{"id":"`) : len(`{"id":"`)+36])))
		records, err := f.Get(t.Context(), id, old)
		f.NoError(err)
		f.Equal("new\x00bytes", string(records[1].Payload))
		f.Equal(map[string]string{"a": "1", "c": "3"}, records[1].Headers)
		f.Contains(records[0].LastError, "edited by alice")

		code, _, errOut := f.run("dead", "edit", old.String(), "--payload", "x")
		f.Equal(exitTrouble, code)
		f.Contains(errOut, "not a dead letter")
	})
}

// The copy has a time of its own to expire and is no step of a join, and nobody gives it what the library sets.
func TestEditKeepsOffTheHeadersOfTheLibrary(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders", StreamKey: "s", Headers: map[string]string{
			"a": "1", "outbox_expires_at": "2100-01-01T00:00:00Z", "outbox_join_step_of": "0198f0c4-5a0b-7000-8000-000000000000", "outbox_attempt": "3"}})
		old := f.fail("orders", "broken")[0]
		for header, says := range map[string]string{
			"outbox_message_id=zz":       "--header outbox_message_id is set by the library",
			"outbox_join_step_of=zz":     "--header outbox_join_step_of is set by the library",
			"outbox_stream_key=zz":       "--header outbox_stream_key would change nothing: the copy stays in the stream of the dead letter",
			"outbox_stream_key=":         "would change nothing",
			"outbox_expires_at=tomorrow": "--header outbox_expires_at is not an RFC 3339 time",
		} {
			code, out, errOut := f.run("dead", "edit", old.String(), "--header", header)
			f.Equal(exitUsage, code, header)
			f.Empty(out)
			f.Contains(errOut, says)
		}
		f.Equal(1, f.Count(outbox.Failed))
		f.ok("dead", "edit", old.String(), "--header", "a=2", "--header", "outbox_attempt=")
		claimed := f.claim("orders", 1000, time.Minute)
		f.Len(claimed, 1)
		f.Equal(map[string]string{"a": "2"}, claimed[0].Headers)
	})
}

// The payload of a message is shown byte for byte, so that it can be changed and put into a copy.
func TestTheRawPayloadIsEdited(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		payload := "{\"id\": 7}\r\n\x00\xff\x1b[31m"
		f.publish(outbox.Message{UUID: "u", Topic: "orders", Payload: []byte(payload)})
		old := f.fail("orders", "broken")[0]
		f.Equal(payload, f.ok("message", "show", "u", "--raw"))
		raw := f.ok("dead", "show", old.String(), "--raw")
		file := filepath.Join(t.TempDir(), "order.json")
		f.NoError(os.WriteFile(file, []byte(raw), 0o600))
		f.ok("dead", "edit", old.String(), "--file", file)
		claimed := f.claim("orders", 1000, time.Minute)
		f.Len(claimed, 1)
		f.Equal(payload, string(claimed[0].Payload))
		for _, other := range [][]string{{"--payload"}, {"--headers"}, {"-o", "json"}} {
			code, out, errOut := f.run(append([]string{"message", "show", "u", "--raw"}, other...)...)
			f.Equal(exitUsage, code, errOut)
			f.Empty(out)
		}
	})
}

// A paused topic is not one that nobody handles: doctor says who paused it.
func TestDoctorNamesAPause(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders"})
		f.ok("topic", "pause", "orders", "--by", "alice", "--reason", "the bank is down")
		f.passes()
		code, out, _ := f.run("doctor", "--patience", "1ms")
		f.Equal(exitTrouble, code)
		f.Contains(out, `paused: 1 message of topic "orders" is due`)
		f.Contains(out, "by alice: the bank is down")
		f.NotContains(out, "no-worker")
		f.Contains(f.ok("topics"), "by alice: the bank is down")
		f.ok("topic", "resume", "orders")
		_, out, _ = f.run("doctor", "--patience", "1ms")
		f.NotContains(out, "paused")
	})
}

// Whoever pauses a topic that is paused, or that nobody has ever published to, is told so.
func TestPausingTellsWhatIsOdd(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders"})
		f.Equal("Topic \"orders\" is paused.\n", f.ok("topic", "pause", "orders", "--by", "bob", "--reason", "the bank is down"))
		f.Regexp(`^Topic "orders" is paused\. It was already, since \S+ \S+Z by bob: the bank is down; the reason and who gave it are new\.\n$`,
			f.ok("topic", "pause", "orders", "--by", "alice", "--reason", "lunch"))
		f.Equal("Topic \"Orders\" is paused. No message of this topic is here; names are exact.\n", f.ok("topic", "pause", "Orders"))
		f.Equal(`{"paused":"orders"}`+"\n", f.ok("topic", "pause", "orders", "-o", "json"))
	})
}

// Times in tables are in UTC, say so, and can be given back.
func TestTimesAreInUTC(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders"})
		at := regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z`).FindString(f.ok("message", "list"))
		f.Contains(f.ok("message", "list", "--since", at), "orders")
		f.NotContains(f.ok("message", "list", "--until", "2026-01-01 00:00:00Z"), "orders")
	})
}

// What was published with --ttl expires.
func TestPublishWithATTL(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.ok("message", "publish", "orders", "--payload", "x", "--ttl", "1h")
		claimed := f.claim("orders", 1000, time.Minute)
		f.Len(claimed, 1)
		f.InDelta(time.Hour, claimed[0].ExpiresAt.Sub(claimed[0].ClaimedAt), float64(5*time.Minute))
	})
}

// What was forgotten, or would be stored and mean nothing, is refused.
func TestPublishRefusesWhatIsNotMeant(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		for want, args := range map[string][]string{
			"[payload file]":             {},
			"is set with --stream":       {"--payload", "x", "--header", "outbox_stream_key=zz"},
			"is set by the library":      {"--payload", "x", "--header", "outbox_message_id=zz"},
			"RFC 3339":                   {"--payload", "x", "--header", "outbox_expires_at=tomorrow"},
			`--header "tenant" has no =`: {"--payload", "x", "--header", "tenant"},
		} {
			code, _, errOut := f.run(append([]string{"message", "publish", "orders"}, args...)...)
			f.Equal(exitUsage, code, args)
			f.Contains(errOut, want)
		}
		f.Empty(f.Rows())
		f.ok("message", "publish", "orders", "--payload", "", "--header", "a=b=c")
		f.ok("message", "publish", "orders", "--payload", "x", "--header", "outbox_expires_at=2100-01-01T00:00:00Z")
		f.Len(f.Rows(), 2)
	})
}

// A store that is down, and one that is not installed, are rows that say so, and the others are looked after.
func TestStoresOfWhichSomeAreDown(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders"})
		dir := t.TempDir()
		file := filepath.Join(dir, "stores.yaml")
		f.NoError(os.WriteFile(file, fmt.Appendf(nil, `
- {name: up, dsn: %q}
- name: down
  dsn: postgres://user:secret@127.0.0.1:1/none?connect_timeout=1
- name: new
  dsn: sqlite:%s
`, f.DB.DSN, filepath.Join(dir, "new.db")), 0o600))
		run := func(want int, args ...string) []string {
			if f.DB.Schema != "" {
				args = append(args, "--schema", f.DB.Schema)
			}
			code, out, errOut := runStreams(t.Context(), f.streams, append([]string{"stores"}, append(args, "--stores", file)...)...)
			f.Equal(want, code, "%s%s", out, errOut)
			f.NotContains(out+errOut, "secret")
			return strings.Split(strings.TrimSpace(out), "\n")
		}
		f.Len(run(exitOK, "list"), 4)
		rows := run(exitTrouble, "status", "-o", "json")
		f.Contains(rows[0], `"state":"ok","waiting":1,"age_seconds":`)
		f.Contains(rows[0], `,"failed":0,"paused_topics":0}`)
		f.NotContains(rows[1], "waiting", "nobody knows")
		rows = run(exitTrouble, "status")
		f.Len(rows, 4)
		f.Regexp(`^up +\S+ +ok +1 `, rows[1])
		f.Regexp(`^down .*cannot be reached`, rows[2])
		f.Regexp(`^new `, rows[3])
		if f.DB.Schema != "" { // which a SQLite file does not have
			return
		}
		rows = run(exitTrouble, "migrate")
		f.Regexp(`^up +sqlite +up to date`, rows[1])
		f.Regexp(`^down +down`, rows[2])
		f.Regexp(`^new +sqlite +migrated`, rows[3])
		f.Regexp(`^new +sqlite +ok`, run(exitTrouble, "status")[3])
	})
}

func TestStoresRefusesABadFile(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		for text, want := range map[string]string{
			"": "names no store", "{": "is no list of stores", "- {name: a}": "has no name or no dsn", "[{name: a, dsn: x}, {name: a, dsn: y}]": "twice",
		} {
			f.streams.In = strings.NewReader(text)
			code, _, errOut := runStreams(t.Context(), f.streams, "stores", "list", "--stores", "-")
			f.Equal(exitUsage, code, text)
			f.Contains(errOut, want)
		}
	})
}
