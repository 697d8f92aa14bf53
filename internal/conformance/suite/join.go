package suite

import (
	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// Joins returns the coordinator of the fixture's outbox, changed by options.
func (f *Fixture) Joins(options ...func(*join.Config)) *join.Coordinator {
	f.T.Helper()
	return f.JoinsLogging(nil, options...)
}

// JoinsLogging is the same with a logger.
func (f *Fixture) JoinsLogging(logger watermill.LoggerAdapter, options ...func(*join.Config)) *join.Coordinator {
	f.T.Helper()
	config := join.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table}
	for _, option := range options {
		option(&config)
	}
	c, err := join.NewCoordinator(f.DB.DB, config, logger)
	f.NoError(err)
	return c
}

// Start begins a join.
func (f *Fixture) Start(c *join.Coordinator, params join.StartParams) join.ID {
	f.T.Helper()
	id, err := c.Start(f.Context(), nil, params)
	f.NoError(err)
	return id
}

// StartWith begins a join of n steps, which are new messages on the topic.
func (f *Fixture) StartWith(c *join.Coordinator, topic string, n int) (join.ID, []outbox.MessageID) {
	f.T.Helper()
	id := f.Start(c, join.StartParams{ExpectedSteps: n})
	return id, f.AddSteps(c, id, topic, n)
}

// AddSteps enqueues n messages as steps of a join.
func (f *Fixture) AddSteps(c *join.Coordinator, id join.ID, topic string, n int) []outbox.MessageID {
	f.T.Helper()
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{Topic: topic, Payload: []byte("step")}
	}
	ids, err := c.Enqueue(f.Context(), nil, id, messages...)
	f.NoError(err)
	return ids
}

// Join reads how a join stands.
func (f *Fixture) Join(c *join.Coordinator, id join.ID) join.Join {
	f.T.Helper()
	j, err := c.Get(f.Context(), nil, id)
	f.NoError(err)
	return j
}

// Stands asserts the status and counters of a join, as the table has them and as the library reads them.
func (f *Fixture) Stands(c *join.Coordinator, id join.ID, status join.Status, completed, failed int) {
	f.T.Helper()
	want := []any{status, completed, failed}
	r := f.JoinRow(id)
	f.Equal(want, []any{join.Status(r.Status), r.Completed, r.Failed}, "status, completed, failed")
	j := f.Join(c, id)
	f.Equal(want, []any{j.Status, j.CompletedSteps, j.FailedSteps}, "status, completed, failed, by Get")
}

// JoinsWork goes once through everything that joins can do, but for the handler of waits.
func (f *Fixture) JoinsWork() {
	f.T.Helper()
	c := f.Joins()
	id := f.Start(c, join.StartParams{Open: true, GroupingKey: "a group"})
	steps := f.AddSteps(c, id, "steps", 2)
	extra := f.EnqueueN("extra", 1)
	f.NoError(c.Attach(f.Context(), nil, id, extra...))
	f.NoError(c.AttachByReport(f.Context(), nil, id, outbox.MessageID{1}))
	_, err := c.EnqueueWait(f.Context(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
	f.NoError(err)
	claimed := f.Claim("steps")
	f.Equal(steps, MessageIDs(claimed))
	f.Empty(f.Settle(append(Settled(outbox.Ack, claimed[0]), Settled(outbox.Fail, claimed[1])...)...))
	f.NoError(c.ReportStepCompleted(f.Context(), nil, id, outbox.MessageID{1}))
	f.NoError(c.ReportStepFailed(f.Context(), nil, id, extra[0]))
	f.Empty(f.Claim(join.DefaultWaitTopic))
	f.NoError(c.Seal(f.Context(), nil, id))
	waiting := f.Claim(join.DefaultWaitTopic)
	f.Len(waiting, 1)

	found, err := c.ByGroup(f.Context(), nil, "a group", join.ID{}, 10)
	f.NoError(err)
	f.Len(found, 1)
	f.Equal([]any{join.Failed, 4, 2, 2}, []any{found[0].Status, found[0].ExpectedSteps, found[0].CompletedSteps, found[0].FailedSteps})
	read, err := c.Steps(f.Context(), nil, id, outbox.MessageID{}, 10)
	f.NoError(err)
	f.Len(read, 4)
	f.ErrorIs(c.Cancel(f.Context(), nil, id), join.ErrEnded)

	f.Settle(Settled(outbox.Ack, append(waiting, f.Claim("extra")...)...)...)
	f.Exec("UPDATE {join} SET {created} = {past}, {updated} = {past}")
	n, err := c.Purge(f.Context(), 0)
	f.NoError(err)
	f.Equal(1, n)
	f.Clear()
}

// Fewer is how often a test does what it should do n times, on a slow server.
func (f *Fixture) Fewer(n int) int {
	if f.Slow() {
		return max(1, n/10)
	}
	return n
}
