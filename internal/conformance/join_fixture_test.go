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
func (f *fixture) start(c *join.Coordinator, params join.StartParams) outbox.JoinID {
	f.t.Helper()
	id, err := c.Start(f.ctx(), nil, params)
	f.NoError(err)
	return id
}

// startWith begins a join of n steps, which are new messages on the topic.
func (f *fixture) startWith(c *join.Coordinator, topic string, n int) (outbox.JoinID, []outbox.MessageID) {
	f.t.Helper()
	id := f.start(c, join.StartParams{ExpectedSteps: n})
	return id, f.addSteps(c, id, topic, n)
}

// addSteps enqueues n messages as steps of a join.
func (f *fixture) addSteps(c *join.Coordinator, id outbox.JoinID, topic string, n int) []outbox.MessageID {
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
func (f *fixture) join(c *join.Coordinator, id outbox.JoinID) join.Join {
	f.t.Helper()
	j, err := c.Get(f.ctx(), nil, id)
	f.NoError(err)
	return j
}

// stands asserts the status and counters of a join, as the table has them and as the library reads them.
func (f *fixture) stands(c *join.Coordinator, id outbox.JoinID, status outbox.JoinStatus, completed, failed int) {
	f.t.Helper()
	want := []any{status, completed, failed}
	r := f.joinRow(id)
	f.Equal(want, []any{outbox.JoinStatus(r.status), r.completed, r.failed}, "status, completed, failed")
	j := f.join(c, id)
	f.Equal(want, []any{j.Status, j.CompletedSteps, j.FailedSteps}, "status, completed, failed, by Get")
}
