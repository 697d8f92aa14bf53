package conformance

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// A message that is for the log alone never ends: as a step it left its join pending for ever.
func TestTrap_LogOnlySteps(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids, err := f.logOutbox().Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "logged"})
		f.NoError(err)
		queued := f.enqueueN("queued", 1)
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 2})
		err = c.Attach(f.ctx(), nil, id, append(queued, ids...)...)
		f.ErrorIs(err, join.ErrLogOnly)
		f.ErrorContains(err, ids[0].String())
		f.Zero(f.joinRow(id).members, "nothing was attached")
		f.NoError(c.AttachByReport(f.ctx(), nil, id, ids...))
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, ids[0]))
		f.NoError(c.Attach(f.ctx(), nil, id, queued...))
		f.settle(settled(outbox.Ack, f.claim("queued")...)...)
		f.stands(c, id, join.Completed, 2, 0)

		_, err = join.NewPublisher(f.db.DB, outbox.PublisherConfig{
			Dialect: f.config.Dialect, Schema: f.config.Schema, Log: outbox.LogOnly}, c, nil)
		f.requireField(err, "PublisherConfig.Log")
	})
}
