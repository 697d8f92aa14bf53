package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// hostile would recolour a terminal, turn its text around, clear a line and ring.
const hostile = "a\x1b[31mred\u202etxt\r\u009b2J\a\U000e0041"

func requireHarmless(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q in %q", r, text)
	}
}

func TestHostileTextsAreShownAsText(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		id := f.publish(outbox.Message{UUID: hostile, Topic: "topic " + hostile, StreamKey: hostile, CorrelationID: hostile,
			Payload: []byte(hostile), Headers: map[string]string{hostile: hostile}})
		f.fail("topic "+hostile, "error "+hostile)
		for _, args := range [][]string{
			{"message", "list"}, {"dead", "list"}, {"dead", "errors"}, {"dead", "show", id.String(), "--payload", "--headers"},
			{"stream", "list"}, {"topics"}, {"doctor"},
		} {
			for _, format := range []string{"table", "json"} {
				_, out, errOut := f.run(append(args, "-o", format)...)
				requireHarmless(t, out)
				requireHarmless(t, errOut)
				f.NotEmpty(out)
				if format == "json" && args[0] != "doctor" {
					var parsed map[string]any
					f.NoError(json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &parsed))
					if topic, ok := parsed["topic"]; ok {
						f.Equal("topic "+hostile, topic, "programs get the text itself")
					}
				}
			}
		}
		_, _, errOut := f.run("message", "show", hostile+"x")
		requireHarmless(t, errOut)
	})
}

// Neither payloads nor headers are shown to those who have not asked for them.
func TestPayloadsAreHidden(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		id := f.publish(outbox.Message{UUID: "u", Topic: "orders", Payload: []byte("the secret"), Headers: map[string]string{"name": "hidden"}})
		for _, format := range []string{"table", "json"} {
			out := f.ok("message", "show", id.String(), "-o", format)
			f.NotContains(out, "secret")
			f.NotContains(out, "hidden")
			f.Contains(f.ok("message", "show", "u", "--payload", "-o", format), "the secret")
			f.Contains(f.ok("message", "show", "u", "--headers", "-o", format), "hidden")
		}
	})
}

func TestPasswordsAreNotPrinted(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://me:s3cr3t%21@127.0.0.1:1/db?sslmode=disable", "host=127.0.0.1 port=1 user=me password=s3cr3t! sslmode=disable",
		"sqlserver://me:s3cr3t%21@127.0.0.1:1?database=db&dial timeout=1", "server=127.0.0.1;port=1;user id=me;password=s3cr3t!;database=db;dial timeout=1",
		"postgres://me:s3cr3t%zz@127.0.0.1:1/db", "mysql://me:s3cr3t!@127.0.0.1/db", "sqlite:/nowhere/s.db?password=s3cr3t!",
	} {
		code, out, errOut := runStreams(t.Context(), Streams{Env: func(string) string { return dsn }}, "doctor")
		require.Contains(t, []int{exitDatabase, exitUsage}, code, errOut)
		require.NotContains(t, out+errOut, "s3cr3t", dsn)
		require.NotEmpty(t, errOut)
	}
}
