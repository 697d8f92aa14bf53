package cli

import (
	"os/user"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// Who did it is known without $USER, which services and containers lack.
func TestTrap_TheAuditNamesWhoHasNoUSER(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		f.ok("topic", "pause", "orders")
		who, err := user.Current()
		f.NoError(err)
		f.Contains(f.ok("audit", "list"), " "+who.Username+" ")
		f.streams.Env = func(name string) string { return map[string]string{"USER": "ann"}[name] }
		f.ok("topic", "resume", "orders")
		f.Contains(f.ok("audit", "list"), " ann ")
	})
}

// Who has no inbox is told how to install one, and the help of its commands shows its own.
func TestTrap_TheInboxIsNotTheOutbox(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		for _, args := range [][]string{{"inbox", "list"}, {"inbox", "requeue", "--all"}, {"inbox", "show", "a", "b", "c"}, {"inbox", "purge", "--older-than", "1d", "--yes"}} {
			code, _, errOut := f.run(args...)
			f.Equal(exitTrouble, code, args)
			f.Contains(errOut, "'outbox migrate up --inbox'", args)
		}
		code, out, _ := f.run("doctor", "--inbox")
		f.Equal(exitTrouble, code)
		f.Contains(out, "'outbox migrate up --inbox'")
		help := f.ok("inbox", "requeue", "--help")
		f.Contains(help, "  outbox inbox requeue --error")
		f.NotContains(help, "outbox dead")
	})
}

// All durations may be in days, and none is negative.
func TestTrap_DurationsInDays(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		for _, args := range [][]string{
			{"message", "publish", "orders", "--payload", "x", "--delay", "7d"}, {"message", "publish", "orders", "--payload", "x", "--ttl", "7d"},
			{"message", "delay", "--all", "--yes", "--for", "7d"}, {"doctor", "--patience", "1d"}, {"log", "lag", "--max", "7d"}, {"topics", "--timeout", "1d"},
		} {
			f.ok(args...)
			args[len(args)-1] = "-5s"
			code, _, errOut := f.run(args...)
			f.Equal(exitUsage, code, args)
			f.Contains(errOut, `"-5s"`, args)
			f.Contains(errOut, "30d", args)
		}
		f.Contains(f.ok("doctor", "--help"), "(default 1m)")
		f.Contains(f.ok("log", "lag", "--max", "7d"), "more than 7d.")
	})
}

// Programs read one kind of line: where a page ended is told beside it.
func TestTrap_PagesOfJSON(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 3)
		f.fail("orders", "broken")
		for _, command := range []string{"message", "dead"} {
			code, out, errOut := f.run(command, "list", "-n", "2", "-o", "json")
			f.Equal(exitOK, code)
			f.Equal(2, strings.Count(out, `{"id":"`), out)
			f.Equal(2, strings.Count(out, "\n"), out)
			f.Regexp(`^\{"next":"[^"]+","examined":\d+\}\n$`, errOut)
		}
	})
}

// States are accepted as they are printed, and an end by an operator is told once.
func TestTrap_StatesAsTheyArePrinted(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		f.ok("message", "publish", "events", "--payload", "x", "--to", "log")
		f.publish(outbox.Message{Topic: "bills"})
		f.claim("bills", 1000, time.Hour)
		f.publish(outbox.Message{UUID: "u", Topic: "orders"})
		for _, state := range []string{"logged", "log", "in progress", "progress", "in progress,logged", "ready"} {
			out := f.ok("message", "list", "--state", state)
			f.Equal(strings.Contains(state, "log"), strings.Contains(out, "events"), "%s: %s", state, out)
			f.Equal(strings.Contains(state, "progress"), strings.Contains(out, "bills"), "%s: %s", state, out)
		}
		code, _, errOut := f.run("message", "list", "--state", "dead")
		f.Equal(exitUsage, code)
		f.Contains(errOut, "it is ready, in progress, done, failed or logged")

		f.Equal("1 ready message (of 3 looked at) would be cancelled.\n", f.ok("message", "cancel", "--topic", "orders", "--dry-run"))
		_, _, errOut = f.run("message", "cancel", "--topic", "orders")
		f.Contains(errOut, "Cancel 1 ready message (of 3 looked at)? ")
		f.ok("message", "cancel", "--topic", "orders", "--yes", "--by", "alice")
		f.Regexp(`attempt +\S+ \S+  \d+  ended by an operator  cancelled by alice\n`, f.ok("message", "show", "u"))
	})
}

// What is printed reads as it was meant.
func TestTrap_Words(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		for _, none := range []struct {
			args []string
			says string
		}{
			{[]string{"dead", "list"}, "There are no dead letters."},
			{[]string{"dead", "list", "--topic", "orders"}, "There is no such dead letter."},
			{[]string{"dead", "errors"}, "There are no dead letters."},
			{[]string{"dead", "errors", "--until", "1h"}, "There is no such dead letter."},
			{[]string{"dead", "discard", "--all"}, "There are no dead letters."},
			{[]string{"dead", "discard", "--topic", "orders"}, "There is no such dead letter."},
			{[]string{"message", "list"}, "There are no messages."},
			{[]string{"message", "list", "--state", "done"}, "There is no such message."},
			{[]string{"join", "list"}, "There are no joins."},
			{[]string{"join", "list", "--pending"}, "There is no such join."},
		} {
			f.Equal(none.says+"\n", f.ok(none.args...), none.args)
		}

		code, _, errOut := f.run("dead", "edit", "0198f0c4-5a0b-7000-8000-000000000000", "--payload", "x")
		f.Equal(exitTrouble, code)
		f.Equal("outbox: there is no such message in this outbox\n", errOut)

		_, _, errOut = runStreams(t.Context(), Streams{}, "dea")
		f.Contains(errOut, "Did you mean this?\n\tdead\n")
		f.False(strings.HasSuffix(errOut, "\n\n"), errOut)

		f.Enqueue("orders", 0, 1)
		f.passes()
		_, out, _ := f.run("doctor", "--patience", "1ms")
		f.Contains(out, `1 message of topic "orders" is due, the first for `)
	})
}
