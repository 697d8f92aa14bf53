package log_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// A message that is for the log alone never ends: as a step it left its join pending for ever.
func TestTrap_LogOnlySteps(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids, err := f.LogOutbox().Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "logged"})
		f.NoError(err)
		queued := f.EnqueueN("queued", 1)
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 2})
		err = c.Attach(f.Context(), nil, id, append(queued, ids...)...)
		f.ErrorIs(err, join.ErrLogOnly)
		f.ErrorContains(err, ids[0].String())
		f.Zero(f.JoinRow(id).Members, "nothing was attached")
		f.NoError(c.AttachByReport(f.Context(), nil, id, ids...))
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, ids[0]))
		f.NoError(c.Attach(f.Context(), nil, id, queued...))
		f.Settle(suite.Settled(outbox.Ack, f.Claim("queued")...)...)
		f.Stands(c, id, join.Completed, 2, 0)

		_, err = join.NewPublisher(f.DB.DB, outbox.PublisherConfig{
			Dialect: f.Config.Dialect, Schema: f.Config.Schema, Log: outbox.LogOnly}, c, nil)
		f.RequireField(err, "PublisherConfig.Log")
	})
}

// A collation may have no weight for the letters of a topic, so that it is the same to it as no topic, which is all of them.
func TestTrap_TopicsOfAnyScript(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, topic := range []string{"orders", "ግዜ", "ꡜ", "\u200d"} {
			f.LogN(topic, 0, 2)
		}
		f.Stamp()
		for _, topic := range []string{"ግዜ", "ꡜ", "\u200d"} {
			read, err := f.groupBegins("group", topic).Read(f.Context(), 0, 10)
			f.NoError(err)
			f.Len(read, 2, topic)
			f.Equal(topic, read[0].Topic)
		}
	})
}
