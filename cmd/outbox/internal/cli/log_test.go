package cli

import "testing"

// A name that no consumer group has is a mistake, and no act.
func TestGroupsThatAreNotThere(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		f.fallsBehind()
		for _, args := range [][]string{
			{"log", "forget", "nog"}, {"log", "dead", "list", "nog"}, {"log", "dead", "requeue", "nog", "--all"}, {"log", "dead", "discard", "nog", "--all"},
		} {
			code, out, errOut := f.run(append(args, "--yes")...)
			f.Equal(exitTrouble, code, args)
			f.Empty(out, args)
			f.Contains(errOut, `there is no consumer group "nog"`, args)
		}
		f.NotContains(f.ok("audit", "list"), "forget group")
		f.Equal("The group has given nothing up.\n", f.ok("log", "dead", "list", "mail"))
	})
}

// A consumer group is moved past the message that blocks it, which is then a dead letter: listed, requeued, discarded.
func TestSkippingForAGroup(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.BlockGroup("mail", "events")
		f.Contains(f.ok("log", "skip", "mail", "events", "--yes", "--by", "alice"), " at position 1 became a dead letter of the group.\n")
		code, _, errOut := f.run("log", "skip", "mail", "events", "--yes")
		f.Equal(exitTrouble, code)
		f.Contains(errOut, "has tried no message of topic")

		f.Contains(f.ok("log", "dead", "list", "mail"), "skipped by an operator")
		f.Contains(f.ok("log", "dead", "list", "mail", "-o", "json"), `{"position":1,"message_id":"`)
		code, out, _ := f.run("doctor", "--patience", "1h")
		f.Equal(exitTrouble, code)
		f.Contains(out, "'outbox log dead list'")
		code, out, errOut = f.run("log", "dead", "requeue", "mail", "2", "--yes")
		f.Equal(exitTrouble, code)
		f.Equal("0 dead letters requeued.\n", out)
		f.Contains(errOut, "0 of 1: the group has no other dead letter at these positions")
		f.Equal("1 dead letter requeued.\n", f.ok("log", "dead", "requeue", "mail", "1", "--yes"))
		f.Equal("1 dead letter discarded.\n", f.ok("log", "dead", "discard", "mail", "--all", "--yes"))
		f.Equal("The group has given nothing up.\n", f.ok("log", "dead", "list", "mail"))
		f.Contains(f.ok("audit", "list"), "skip for group")
	})
}
