package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
)

// A stopper interrupts a command once it has written a line.
type stopper struct {
	bytes.Buffer
	stop context.CancelFunc
}

func (s *stopper) Write(p []byte) (int, error) {
	s.stop()
	return s.Buffer.Write(p)
}

// A command that is interrupted says how to continue, and what continues it requeues nothing a second time.
func TestRequeueInterruptedAndContinued(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 2500)
		f.Enqueue("bills", 5000, 12)
		f.fail("orders", "no such customer")
		f.fail("bills", "refused")
		f.passes()
		f.Contains(f.ok("dead", "requeue", "--error", "such", "--dry-run"), "2,500 dead letters of 2,512 would be requeued.")

		ctx, stop := context.WithCancel(t.Context())
		out := &stopper{stop: stop}
		f.streams.Out = out
		code, _, errOut := f.runIn(ctx, "dead", "requeue", "--error", "such", "--yes", "-o", "json")
		f.streams.Out = nil
		f.Equal(exitInterrupted, code, errOut)
		until := regexp.MustCompile(`the same command with (--until) (\S+)`).FindStringSubmatch(errOut)
		f.NotNil(until, errOut)
		f.Contains(errOut, "Stopped after 1,000 dead letters were requeued.")

		f.passes()
		again := f.fail("orders", "no such customer, again")
		f.Len(again, 1000)
		f.Equal("1,500 dead letters requeued.\n", f.ok("dead", "requeue", "--error", "such", "--yes", until[1], until[2]))
		seen := map[outbox.MessageID]bool{}
		for _, id := range append(again, f.fail("orders", "no such customer, again")...) {
			f.False(seen[id], "%s was requeued twice", id)
			seen[id] = true
		}
		f.Len(seen, 2500)
	})
}

func TestProgressIsALineOfJSONForEachBatch(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 1500)
		f.fail("orders", "broken")
		f.passes()
		var batches []batch
		for line := range strings.Lines(f.ok("dead", "discard", "--topic", "orders", "--yes", "--output", "json")) {
			var b batch
			f.NoError(json.Unmarshal([]byte(line), &b))
			f.NotEmpty(b.Until)
			b.Until = ""
			batches = append(batches, b)
		}
		f.Equal([]batch{{1000, 1000, 1000, "", false}, {1500, 1500, 1500, "", false}, {1500, 1500, 1500, "", true}}, batches)
		f.Empty(f.Rows())
	})
}

// Purging dead letters asks with their number, and with the age as it was typed.
func TestPurgeAsksWithACount(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 3)
		f.fail("orders", "broken")
		f.passes()
		f.streams.Asks = true
		f.streams.In = strings.NewReader("n\n")
		code, _, errOut := f.run("purge", "--failed", "--older-than", "1ms")
		f.Equal(exitUsage, code)
		f.Contains(errOut, "Delete 3 dead letters that failed more than 1ms ago? [y/N] ")
		f.Equal("0 messages were deleted.\n", f.ok("purge", "--failed", "--older-than", "30d"), "nothing is asked about nothing")
		for _, args := range [][]string{{"purge", "--older-than", "30d"}, {"join", "purge", "--older-than", "30d"}, {"inbox", "purge", "--older-than", "30d"}} {
			f.streams.In = strings.NewReader("n\n")
			_, _, errOut := f.run(args...)
			f.Contains(errOut, " more than 30d ago", args)
		}
		f.Len(f.Rows(), 3)
		f.NotContains(f.ok("purge", "--help"), "default 0s")
	})
}

// Who cannot be asked must say so.
func TestWhatCannotBeUndoneAsks(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 3)
		f.fail("orders", "broken")
		f.passes()
		for _, args := range [][]string{
			{"dead", "discard", "--all"}, {"dead", "requeue", "--all"}, {"purge", "--older-than", "0s"}, {"join", "purge", "--older-than", "1d"},
			{"join", "cancel", "0198f0c4-5a0b-7000-8000-000000000000"}, {"log", "forget", "mail"}, {"log", "skip", "mail", "orders"}, {"log", "dead", "discard", "mail", "--all"}, {"stream", "resume", "a", "b", "--discard"},
		} {
			code, out, errOut := f.run(args...)
			f.Equal(exitUsage, code, "%v: %s", args, out)
			f.Contains(errOut, "add --yes", args)
		}
		f.streams.Asks = true
		f.streams.In = strings.NewReader("n\n")
		code, _, errOut := f.run("dead", "discard", "--all")
		f.Equal(exitUsage, code)
		f.Contains(errOut, "Discard 3 dead letters of 3? [y/N] outbox: nothing was done")
		f.Len(f.Rows(), 3)
		f.streams.In = strings.NewReader("yes\n")
		f.Contains(f.ok("dead", "discard", "--all"), "3 dead letters discarded.")
		f.Empty(f.Rows())
	})
}
