package conformance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

func TestJoinSmoke(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 50)
		f.Len(steps, 50)
		f.stands(c, id, outbox.JoinPending, 0, 0)
		claimed := f.claim("s")
		f.Empty(f.settle(settled(outbox.Ack, claimed[:49]...)...))
		f.stands(c, id, outbox.JoinPending, 49, 0)
		wait, err := c.EnqueueWait(f.ctx(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next", Payload: []byte("go")}})
		f.NoError(err)
		f.Empty(f.claim(join.DefaultWaitTopic))
		f.Empty(f.settle(settled(outbox.Fail, claimed[49:]...)...))
		f.stands(c, id, outbox.JoinFailed, 49, 1)
		f.Len(f.claim(join.DefaultWaitTopic), 1)
		_ = wait

		// open, seal, report, cancel
		open := f.start(c, join.StartParams{Open: true, GroupingKey: "g", Metadata: "m"})
		ids := f.addSteps(c, open, "o", 3)
		f.NoError(c.Attach(f.ctx(), nil, open, ids...))
		f.settle(settled(outbox.Ack, f.claim("o")...)...)
		f.stands(c, open, outbox.JoinPending, 3, 0)
		f.NoError(c.Seal(f.ctx(), nil, open))
		f.stands(c, open, outbox.JoinCompleted, 3, 0)
		f.ErrorIs(c.Cancel(f.ctx(), nil, open), join.ErrEnded)
		list, err := c.ByGroup(f.ctx(), nil, "g", outbox.JoinID{}, 10)
		f.NoError(err)
		f.Len(list, 1)
		f.Equal("m", list[0].Metadata)
		st, err := c.Steps(f.ctx(), nil, open, outbox.MessageID{}, 10)
		f.NoError(err)
		f.Len(st, 3)

		full := f.start(c, join.StartParams{ExpectedSteps: 1})
		f.ErrorIs(c.Attach(f.ctx(), nil, full, ids...), join.ErrFull)
		f.NoError(c.Attach(f.ctx(), nil, full, ids[0]))
		f.stands(c, full, outbox.JoinCompleted, 1, 0)
		f.ErrorIs(c.Attach(f.ctx(), nil, full, ids[1]), join.ErrEnded)
		f.ErrorIs(c.Attach(f.ctx(), nil, outbox.JoinID{1}, ids[1]), join.ErrNotFound)
		unknown := f.start(c, join.StartParams{ExpectedSteps: 1})
		f.ErrorIs(c.Attach(f.ctx(), nil, unknown, outbox.MessageID{9}), join.ErrMessageNotFound)
		f.ErrorIs(c.ReportStepFailed(f.ctx(), nil, unknown, outbox.MessageID{9}), join.ErrNotAStep)
		f.NoError(c.AttachByReport(f.ctx(), nil, unknown, outbox.MessageID{9}))
		f.NoError(c.ReportStepFailed(f.ctx(), nil, unknown, outbox.MessageID{9}))
		f.NoError(c.ReportStepFailed(f.ctx(), nil, unknown, outbox.MessageID{9}))
		f.stands(c, unknown, outbox.JoinFailed, 0, 1)
		n, err := c.Purge(f.ctx(), 0)
		f.NoError(err)
		_ = n
	})
}

func TestJoinWaitSmoke(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		router, err := message.NewRouter(message.RouterConfig{}, nil)
		f.NoError(err)
		s := f.subscriber()
		c.AddWaitHandler(router, s)
		go func() { _ = router.Run(f.ctx()) }()
		<-router.Running()
		next := f.subscribe(s, "next")
		child, _ := f.startWith(c, "s", 2)
		parent := f.start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachJoin(f.ctx(), nil, parent, child))
		_, err = c.EnqueueWait(f.ctx(), nil, join.Wait{Join: parent, OnComplete: join.Continuation{Topic: "next", Payload: []byte("go")}})
		f.NoError(err)
		f.settle(settled(outbox.Ack, f.claim("s")...)...)
		msg := f.receive(next)
		f.Equal("go", string(msg.Payload))
		t.Log(msg.Metadata)
		msg.Ack()

		late := f.start(c, join.StartParams{ExpectedSteps: 1})
		_, err = c.EnqueueWait(f.ctx(), nil, join.Wait{Join: late, Timeout: 20 * time.Millisecond, OnComplete: join.Continuation{Topic: "no"}, OnFail: &join.Continuation{Topic: "next", Payload: []byte("late")}})
		f.NoError(err)
		msg = f.receive(next)
		f.Equal("late", string(msg.Payload))
		t.Log(msg.Metadata)
		msg.Ack()
		f.NoError(router.Close())
	})
}
