package outbox

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/flow"
)

// While the Subscriber closes, the last handler acks, and a sweep is the first to see it. What is behind its message in the stream
// is no longer handed out, and goes back before the settler ends.
func TestTrap_AStreamIsGivenBackBehindTheLastAck(t *testing.T) {
	config := SubscriberConfig{PipelineStreams: true} // nothing listens for the ack alone: sweeps see it
	config.setDefaults()
	s := &settler{
		window: flow.NewWindow(flow.Limits{Messages: 10, Batch: 10}, (*Delivery).weight), holdings: flow.NewLeases((*Delivery).owner),
		config: config, logger: watermill.NopLogger{}, runs: newRuns(false), arrived: flow.NewNote(), prompted: flow.NewNote(),
		pending: newAnswerQueue(), ordered: newOrderedQueue(), drain: make(chan struct{}), expire: make(chan struct{}), freed: func() {},
	}
	s.hand = func(d *Delivery) bool { s.giveBack(Release, nil, d); return false }
	run := []*Delivery{streamDelivery(1, "a"), streamDelivery(2, "a"), streamDelivery(3, "a")}
	require.Equal(t, run[:1], s.runs.begin(run...))
	s.window.Ask(flow.Allowance{})
	s.window.Claimed(flow.Allowance{}, run)
	require.True(t, run[0].open(t.Context()))
	s.watch(run[0])
	ended := make(chan struct{})
	go func() { defer close(ended); s.collect() }()
	s.drain <- struct{}{} // it is closing from here on
	run[0].msg.Ack()
	<-ended
	answers := s.ordered.take()
	require.Equal(t, []WorkItemID{1, 2, 3}, seqsOf(answers))
	require.Equal(t, Release, answers[2].settlement.Outcome)
	require.Empty(t, s.window.InFlight())
}

// Of a message that its handler has failed in a transaction, a nack says that the transaction was not committed: the message comes
// again, and blocks nothing.
func TestTrap_AMessageThatIsNackedAfterSettleTxBlocksNothing(t *testing.T) {
	for _, c := range []struct {
		answer, inTx Outcome
		blocks       bool
	}{{Ack, Fail, true}, {Retry, Fail, false}, {Ack, Ack, false}, {Fail, Ack, true}} {
		logger := watermill.NewCaptureLogger()
		s := &settler{config: SubscriberConfig{OnStreamFailure: Block}, logger: logger}
		d := streamDelivery(1, "a")
		d.settledInTx.Store(&c.inTx)
		s.warn(d.answer(c.answer, nil))
		require.Equal(t, c.blocks, len(logger.Captured()[watermill.ErrorLogLevel]) > 0, "%v after SettleTx(%v)", c.answer, c.inTx)
	}
}
