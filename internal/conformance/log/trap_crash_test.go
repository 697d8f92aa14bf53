package log_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// A message kills its process, whose lease is over by the time that the next one starts. What a process does before it tries the
// message does not make the group forget that: the attempts are counted, and the message becomes a dead letter.
func TestTrap_AGroupRemembersThatItsReaderWasKilled(t *testing.T) {
	killed := base.NewOwnerToken() // the reader
	for name, meanwhile := range map[string]func(*fixture, *outbox.Subscriber){
		"SubscribeInitialize": func(f *fixture, s *outbox.Subscriber) { f.NoError(s.SubscribeInitialize("orders")) },
		"a reader that closes": func(f *fixture, _ *outbox.Subscriber) {
			s := f.GroupSubscriber(f.DB.DB, "group", nil, f.longLease)
			f.Subscribe(s, "orders") // and nobody receives
			f.Eventually(func() bool {
				return f.Number("SELECT COUNT(*) FROM %s WHERE {owner_token} <> '%s'", f.LogTable("group"), killed) == 1
			}, suite.Patience, suite.Tick)
			f.NoError(s.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				f.LogN("orders", 0, 2)
				f.Stamp()
				process := func() *message.Message {
					s := f.GroupSubscriber(f.DB.DB, "group", nil, f.longLease, maxAttempts(2))
					meanwhile(f, s)
					return f.Receive(f.Subscribe(s, "orders"))
				}
				for _, attempt := range []int{1, 1, 2} { // the first to die follows none
					msg := process()
					f.Equal("0", msg.UUID)
					f.Equal(attempt, f.Delivery(msg).Attempt())
					f.Exec("UPDATE %s SET {owner_token} = '%s', {locked_until} = {past}", f.LogTable("group"), killed)
					defer msg.Ack() // too late
				}
				msg := process()
				f.Equal("1", msg.UUID, "the one that kills is not handed out again")
				msg.Ack()
				f.Equal([]string{"0"}, f.deadLetters("group"))
			})
		})
	}
}

// longLease keeps a reader that is dead for the database from asking for its lease.
func (f *fixture) longLease(c *outbox.SubscriberConfig) { c.LeaseDuration = 12 * time.Hour }

// A group that was created without a reader keeps its messages, and is created once.
func TestTrap_SubscribeInitializeOnlyCreatesTheGroup(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 2)
		f.Stamp()
		s := f.GroupSubscriber(f.DB.DB, "group", nil)
		f.NoError(s.SubscribeInitialize("orders"))
		n, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Zero(n)
		msg := f.Receive(f.Subscribe(s, "orders"))
		f.NoError(f.GroupSubscriber(f.DB.DB, "group", nil).SubscribeInitialize("orders"), "another reader has it")
		f.Equal(int64(1), f.Number("SELECT COUNT(*) FROM %s WHERE {owner_token} IS NOT NULL", f.LogTable("group")))
		msg.Ack()
		f.NoError(s.Close())
		f.NoError(s.SubscribeInitialize("orders"))
		f.Equal(int64(1), f.Number("SELECT MAX({position}) FROM %s", f.LogTable("group")))
	})
}
