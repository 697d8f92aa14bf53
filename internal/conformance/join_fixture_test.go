package conformance

import (
	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// joins returns the coordinator of the fixture's outbox, changed by options.
func (f *fixture) joins(options ...func(*join.Config)) *join.Coordinator {
	f.t.Helper()
	return f.joinsLogging(nil, options...)
}

func (f *fixture) joinsLogging(logger watermill.LoggerAdapter, options ...func(*join.Config)) *join.Coordinator {
	f.t.Helper()
	config := join.Config{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Table}
	for _, option := range options {
		option(&config)
	}
	c, err := join.NewCoordinator(f.db.DB, config, logger)
	f.NoError(err)
	return c
}

// start begins a join.
func (f *fixture) start(c *join.Coordinator, params join.StartParams) join.ID {
	f.t.Helper()
	id, err := c.Start(f.ctx(), nil, params)
	f.NoError(err)
	return id
}

// startWith begins a join of n steps, which are new messages on the topic.
func (f *fixture) startWith(c *join.Coordinator, topic string, n int) (join.ID, []outbox.MessageID) {
	f.t.Helper()
	id := f.start(c, join.StartParams{ExpectedSteps: n})
	return id, f.addSteps(c, id, topic, n)
}

// addSteps enqueues n messages as steps of a join.
func (f *fixture) addSteps(c *join.Coordinator, id join.ID, topic string, n int) []outbox.MessageID {
	f.t.Helper()
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{Topic: topic, Payload: []byte("step")}
	}
	ids, err := c.Enqueue(f.ctx(), nil, id, messages...)
	f.NoError(err)
	return ids
}

// join reads how a join stands.
func (f *fixture) join(c *join.Coordinator, id join.ID) join.Join {
	f.t.Helper()
	j, err := c.Get(f.ctx(), nil, id)
	f.NoError(err)
	return j
}

// stands asserts the status and counters of a join, as the table has them and as the library reads them.
func (f *fixture) stands(c *join.Coordinator, id join.ID, status join.Status, completed, failed int) {
	f.t.Helper()
	want := []any{status, completed, failed}
	r := f.joinRow(id)
	f.Equal(want, []any{join.Status(r.status), r.completed, r.failed}, "status, completed, failed")
	j := f.join(c, id)
	f.Equal(want, []any{j.Status, j.CompletedSteps, j.FailedSteps}, "status, completed, failed, by Get")
}

// joinsWork goes once through everything that joins can do, but for the handler of waits.
func (f *fixture) joinsWork() {
	f.t.Helper()
	c := f.joins()
	id := f.start(c, join.StartParams{Open: true, GroupingKey: "a group"})
	steps := f.addSteps(c, id, "steps", 2)
	extra := f.enqueueN("extra", 1)
	f.NoError(c.Attach(f.ctx(), nil, id, extra...))
	f.NoError(c.AttachByReport(f.ctx(), nil, id, outbox.MessageID{1}))
	_, err := c.EnqueueWait(f.ctx(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
	f.NoError(err)
	claimed := f.claim("steps")
	f.Equal(steps, messageIDs(claimed))
	f.Empty(f.settle(append(settled(outbox.Ack, claimed[0]), settled(outbox.Fail, claimed[1])...)...))
	f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, outbox.MessageID{1}))
	f.NoError(c.ReportStepFailed(f.ctx(), nil, id, extra[0]))
	f.Empty(f.claim(join.DefaultWaitTopic))
	f.NoError(c.Seal(f.ctx(), nil, id))
	waiting := f.claim(join.DefaultWaitTopic)
	f.Len(waiting, 1)

	found, err := c.ByGroup(f.ctx(), nil, "a group", join.ID{}, 10)
	f.NoError(err)
	f.Len(found, 1)
	f.Equal([]any{join.Failed, 4, 2, 2}, []any{found[0].Status, found[0].ExpectedSteps, found[0].CompletedSteps, found[0].FailedSteps})
	read, err := c.Steps(f.ctx(), nil, id, outbox.MessageID{}, 10)
	f.NoError(err)
	f.Len(read, 4)
	f.ErrorIs(c.Cancel(f.ctx(), nil, id), join.ErrEnded)

	f.settle(settled(outbox.Ack, append(waiting, f.claim("extra")...)...)...)
	f.exec("UPDATE {join} SET {created} = {past}, {updated} = {past}")
	n, err := c.Purge(f.ctx(), 0)
	f.NoError(err)
	f.Equal(1, n)
	f.clear()
}
