package cli

import (
	"context"
	"os"
	"regexp"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

const commandVariable = "OUTBOX_TEST_COMMAND"

// A command is a command line that runs in a process of its own, as if somebody looked at it.
type command struct{ Args []string }

func (c command) run() error {
	os.Exit(Run(context.Background(), c.Args, Streams{Out: os.Stdout, Err: os.Stdout, Shows: true}))
	return nil
}

// A hundred thousand dead letters are requeued by a filter. The program is killed in the middle, some of what it has requeued
// fails again with the same error, and the command is continued as it has said: each was requeued once.
func TestLong_RequeueKilledAndContinued(t *testing.T) {
	const all, others, failAgain = 100_000, 500, 1000
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, all)
		f.Enqueue("bills", all, others)
		f.fail("orders", "no such customer")
		f.fail("bills", "refused")
		f.passes()

		args := []string{"dead", "requeue", "--error", "such", "--yes"}
		lines := make(chan testprocess.Line, 100)
		process := testprocess.Start(t, commandVariable, command{f.complete(args)}, lines)
		until := regexp.MustCompile(`If this is killed, continue with --until (\S+)`).FindStringSubmatch((<-lines).Text)
		f.NotNil(until)
		f.Eventually(func() bool { return f.Count(outbox.Ready) > all/20 }, 5*testoutbox.Patience, 20*time.Millisecond)
		f.NoError(process.Kill())
		for line := range lines {
			if line.Text == "" {
				break
			}
		}
		first := f.settled()
		f.Less(first, all, "it was not killed in the middle")
		f.passes()

		again := map[outbox.MessageID]bool{}
		requeued := func(ids []outbox.MessageID) {
			for _, id := range ids {
				f.False(again[id], "%s was requeued twice", id)
				again[id] = true
			}
		}
		requeued(f.failSome("orders", failAgain, "no such customer, again"))
		f.streams.Shows = true
		code, out, errOut := f.run(append(args, "--until", until[1])...)
		f.Equal(exitOK, code, errOut)
		f.Contains(errOut, "Requeue", "the bar")
		f.Equal(counted(all-first, "dead letter", "dead letters")+" requeued.\n", out)
		f.Equal(all-failAgain, f.Count(outbox.Ready))
		requeued(f.fail("orders", "no such customer, again"))
		f.Len(again, all)
		f.Equal(all+others, f.Count(outbox.Failed))
		t.Logf("killed after %d, continued with %d", first, all-first)
	})
}

// settled is how many are ready, once a server has ended what it was told before its client was killed.
func (f *fixture) settled() (n int) {
	f.T.Helper()
	same := 0
	f.Eventually(func() bool {
		before := n
		n = f.Count(outbox.Ready)
		if same++; n != before {
			same = 0
		}
		return same > 5
	}, testoutbox.Patience, 50*time.Millisecond)
	return n
}
