package cli

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// What was asked for by its id and is not there is said, and is no success.
func TestTrap_AnActOnAnIDThatIsNotADeadLetterFails(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		const unknown = "0198f0c4-5a0b-7000-8000-000000000000"
		f.Enqueue("done", 0, 1)
		done := f.claim("done", 1, time.Minute)[0]
		f.NoError(f.Ack(f.T.Context(), done.Receipt.Owner, done.Receipt.Seq))
		f.Enqueue("orders", 10, 2)
		dead := f.fail("orders", "broken")
		f.Enqueue("ready", 20, 1)
		f.passes()

		for _, act := range []string{"requeue", "discard"} {
			for _, more := range [][]string{{"--yes"}, {"--dry-run"}} {
				code, out, errOut := f.run(append([]string{"dead", act, unknown}, more...)...)
				f.Equal(exitTrouble, code)
				f.Empty(out)
				f.Equal("outbox: 0 of 1: "+unknown+" is not a dead letter (there is no such message)\n", errOut)
				code, _, errOut = f.run(append([]string{"dead", act, done.ID.String()}, more...)...)
				f.Equal(exitTrouble, code)
				f.Equal("outbox: 0 of 1: "+done.ID.String()+" is not a dead letter (it is done; see 'outbox message show')\n", errOut)
			}
		}
		code, out, errOut := f.run("dead", "requeue", dead[0].String(), unknown, done.ID.String())
		f.Equal(exitTrouble, code)
		f.Equal("1 dead letter requeued.\n", out)
		f.Equal("outbox: 1 of 3: "+unknown+" is not a dead letter (there is no such message); "+
			done.ID.String()+" is not a dead letter (it is done; see 'outbox message show')\n", errOut)
		f.Equal("1 dead letter discarded.\n", f.ok("dead", "discard", dead[1].String(), "--yes"))

		code, _, errOut = f.run("message", "cancel", done.ID.String())
		f.Equal(exitTrouble, code)
		f.Contains(errOut, "0 of 1: "+done.ID.String()+" is not a ready message (it is done; see")
		f.Contains(f.ok("message", "cancel", f.publish(outbox.Message{Topic: "later"}).String()), "1 ready message cancelled.")
	})
}
