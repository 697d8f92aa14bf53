package join_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// A Publish that lost a conflict is run again with all of its messages: those that are events, and those that are not.
func TestTrap_APublishThatIsRunAgainLosesNoMessage(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 2})
		for _, stepIsEvent := range []bool{true, false} {
			pool, conflicts := f.conflictOnce()
			p := f.joinPublisher(pool, c, func(c *outbox.PublisherConfig) {
				c.EventStream = func(_ string, m *message.Message) string { return m.Metadata["stream"] }
			})
			plain, event := message.NewMessage("plain", nil), message.NewMessage("event", nil)
			event.Metadata.Set("stream", "order 1")
			step := plain
			if stepIsEvent {
				step = event
			}
			step.SetContext(join.With(f.Context(), id))
			before := f.Count()
			f.NoError(p.Publish("s", plain, event))
			f.Equal(int32(1), conflicts.Load())
			f.Equal(before+2, f.Count(), "of the plain message and the event, if the step is an event: %v", stepIsEvent)
		}
		f.Equal(2, f.JoinRow(id).Members)
	})
}
