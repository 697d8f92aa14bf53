package testoutbox

import (
	"context"

	outbox "github.com/incursa/watermill-outbox"
)

// BlockGroup has a consumer group stop at the first message of a topic, which it publishes.
func (o *Outbox) BlockGroup(group, topic string) {
	o.T.Helper()
	ctx, cancel := context.WithCancel(o.T.Context())
	defer cancel()
	log, err := outbox.New(o.DB.DB, outbox.Config{Dialect: Dialect(o.DB.Name), Schema: o.DB.Schema, Log: outbox.LogOnly}, nil)
	o.NoError(err)
	_, err = log.Enqueue(ctx, o.DB.DB, outbox.Message{Topic: topic})
	o.NoError(err)
	sequencer, err := outbox.NewSequencer(o.DB.DB, outbox.SequencerConfig{Dialect: Dialect(o.DB.Name), Schema: o.DB.Schema}, nil)
	o.NoError(err)
	ended := make(chan error)
	go func() { ended <- sequencer.Run(ctx) }()

	config := o.Subscriber()
	config.ConsumerGroup, config.MaxAttempts, config.OnGroupFailure = group, 1, outbox.Block
	s, err := outbox.NewSubscriber(o.DB.DB, config, nil)
	o.NoError(err)
	messages, err := s.Subscribe(ctx, topic)
	o.NoError(err)
	for range 2 {
		(<-messages).Nack()
	}
	o.NoError(s.Close())
	cancel()
	o.NoError(<-ended)
}
