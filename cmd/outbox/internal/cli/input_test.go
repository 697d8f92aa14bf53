package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// A waiting input interrupts the command once it is read from, and then says nothing until the test ends.
type waiting struct {
	*io.PipeReader
	interrupt context.CancelFunc
}

func (w *waiting) Read(p []byte) (int, error) {
	w.interrupt()
	return w.PipeReader.Read(p)
}

// A command that waits for its input, be it an answer or a payload, can be interrupted.
func TestInterruptedWhileWaitingForInput(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 3)
		f.fail("orders", "broken")
		f.passes()
		f.streams.Asks = true
		for _, line := range []string{
			"dead discard --all", "log forget mail", "message publish orders --file -", "dead edit 0198f0c4-5a0b-7000-8000-000000000000 --file -", "stores list --stores -",
		} {
			ctx, interrupt := context.WithCancel(t.Context())
			in, says := io.Pipe()
			f.streams.In = &waiting{in, interrupt}
			code, _, errOut := f.runIn(ctx, strings.Fields(line)...)
			f.Equal(exitInterrupted, code, line)
			f.True(strings.HasSuffix("\n"+errOut, "\noutbox: interrupted\n"), "%s: %s", line, errOut)
			f.NoError(says.Close()) // else what reads it stays
		}
		f.Len(f.Rows(), 3)
	})
}

// What takes longer to arrive than --timeout allows is no mistake of the command line.
func TestInputThatTakesTooLong(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	in, says := io.Pipe()
	a := &app{Streams: Streams{In: in}, ran: true}
	_, err := a.readAll(ctx, "the payload", "-")
	require.NoError(t, says.Close())
	code, advice := a.judge(t.Context(), err)
	require.Equal(t, exitDatabase, code)
	require.Contains(t, advice, "--timeout")
}

// What was being committed when it was interrupted may have been done, and that is said.
func TestInterruptedWithAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var says strings.Builder
	a := &app{Streams: Streams{Err: &says, Env: func(string) string { return "" }}, ran: true}
	require.Equal(t, exitInterrupted, a.exit(ctx, fmt.Errorf("%w: %w", outbox.ErrUnknownOutcome, context.Canceled)))
	require.Contains(t, says.String(), "may have been committed")
}
