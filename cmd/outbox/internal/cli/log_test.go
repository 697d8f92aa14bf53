package cli

import (
	"context"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A consumer group is moved past the message that blocks it, which is then a dead letter: listed, requeued, discarded.
func TestSkippingForAGroup(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.blocksGroup("mail", "events")
		f.Contains(f.ok("log", "skip", "mail", "events", "--yes", "--by", "alice"), " at position 1 became a dead letter of the group.\n")
		code, _, errOut := f.run("log", "skip", "mail", "events", "--yes")
		f.Equal(exitTrouble, code)
		f.Contains(errOut, "has tried no message of topic")

		f.Contains(f.ok("log", "dead", "list", "mail"), "skipped by an operator")
		f.Contains(f.ok("log", "dead", "list", "mail", "-o", "json"), `{"position":1,"message_id":"`)
		code, out, _ := f.run("doctor", "--patience", "1h")
		f.Equal(exitTrouble, code)
		f.Contains(out, "'outbox log dead list'")
		f.Equal("0 dead letters requeued.\n", f.ok("log", "dead", "requeue", "mail", "2", "--yes"))
		f.Equal("1 dead letter requeued.\n", f.ok("log", "dead", "requeue", "mail", "1", "--yes"))
		f.Equal("1 dead letter discarded.\n", f.ok("log", "dead", "discard", "mail", "--all", "--yes"))
		f.Equal("The group has given nothing up.\n", f.ok("log", "dead", "list", "mail"))
		f.Contains(f.ok("audit", "list"), "skip for group")
	})
}

// blocksGroup has a consumer group stop at the first message of a topic.
func (f *fixture) blocksGroup(group, topic string) {
	f.T.Helper()
	f.ok("message", "publish", topic, "--to", "log")
	ctx, cancel := context.WithCancel(f.T.Context())
	defer cancel()
	sequencer, err := outbox.NewSequencer(f.DB.DB, outbox.SequencerConfig{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
	f.NoError(err)
	ended := make(chan error)
	go func() { ended <- sequencer.Run(ctx) }()

	config := f.Subscriber()
	config.ConsumerGroup, config.MaxAttempts, config.OnGroupFailure = group, 1, outbox.Block
	s, err := outbox.NewSubscriber(f.DB.DB, config, nil)
	f.NoError(err)
	messages, err := s.Subscribe(ctx, topic)
	f.NoError(err)
	for range 2 {
		(<-messages).Nack()
	}
	f.NoError(s.Close())
	cancel()
	f.NoError(<-ended)
}
