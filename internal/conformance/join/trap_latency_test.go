package join_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testprocess"
	"github.com/incursa/watermill-outbox/join"
	wakepgx "github.com/incursa/watermill-outbox/wake/pgx"
)

// A join takes as long as it takes, and what follows comes at once.

func TestTrap_AJoinSlowerThanAllAttemptsContinues(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const attempts = 3
		book := suite.NewLogBook()
		c := f.JoinsLogging(book, func(c *join.Config) { c.RecheckInterval = time.Millisecond })
		id, last := f.lastStep()
		waiter := f.WaitOn(c, nil, id, "next")
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.MaxAttempts = attempts }) // 1 ms apart
		follows := f.Subscribe(s, "next")
		f.serveWaits(c, s)
		f.Eventually(func() bool { return len(book.At("DEBUG", "waits on")) > 3*attempts }, suite.Patience, time.Millisecond)
		f.Empty(follows)
		f.Empty(f.Settle(suite.Settled(outbox.Ack, last)...))
		msg := f.Receive(follows)
		f.Equal(1, f.Delivery(msg).Attempt())
		msg.Ack()
		r := f.Becomes(waiter, outbox.Done)
		f.Zero(r.Retries)
		f.False(r.HasError)
	})
}

// latencies are the times of some rounds: of a plain message from its publishing to its handler, and of a join from the
// ack of its last step to the handler of what follows.
type latencies struct{ plain, join []time.Duration }

func (l latencies) String() string {
	return fmt.Sprintf("median of %d: %v after the last ack, at most %v; a plain message takes %v",
		len(l.join), suite.Median(l.join), slices.Max(l.join).Round(10*time.Microsecond), suite.Median(l.plain))
}

// comesAtOnce asserts that what follows a join waits for no poll, which comes every ten seconds. By the clock it takes as long
// as some plain messages, which is noted: a join is a settle, a claim, a transaction of five calls and another claim.
func (f *fixture) comesAtOnce(l latencies) {
	f.T.Helper()
	f.T.Log(l)
	f.Less(suite.Median(l.join), 2*time.Second)
}

func TestTrap_WhatFollowsAJoinComesAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		// Nothing but wake-ups has it claim, and those of other tests are for other topics.
		step, next := "step of "+t.Name(), "next of "+t.Name()
		c := f.Joins(func(c *join.Config) { c.WaitTopic = "wait of " + t.Name() })
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.PollInterval, c.MaxPollInterval = 10*time.Second, 10*time.Second })
		steps, follows := f.Subscribe(s, step), f.Subscribe(s, next)
		f.serveWaits(c, s)
		var l latencies
		for range 20 {
			started := time.Now()
			f.EnqueueN(next, 1)
			f.Receive(follows).Ack()
			l.plain = append(l.plain, time.Since(started))

			id, _ := f.StartWith(c, step, 2)
			f.WaitOn(c, nil, id, next)
			both := f.ReceiveN(steps, 2)
			f.becomesDone(both[0])
			started = time.Now()
			both[1].Ack()
			f.Receive(follows).Ack()
			l.join = append(l.join, time.Since(started))
		}
		f.comesAtOnce(l)
	})
}

// becomesDone acks a message and waits until it is settled.
func (f *fixture) becomesDone(msg *message.Message) {
	f.T.Helper()
	id := f.Delivery(msg).MessageID()
	msg.Ack()
	f.Becomes(id, outbox.Done)
}

// The last ack is here, and the wait and what follows are in another process. Only on PostgreSQL does one wake the other;
// elsewhere it polls, and the figure is for the record.
func TestTrap_WhatFollowsAJoinComesAtOnceInAnotherProcess(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		rounds, wakes := 5, f.DB.Name == testdb.Postgres
		r := &killRun{fixture: f, killPlan: killPlan{patience: suite.Patience}, lines: make(chan testprocess.Line),
			joins: joinJob{Recheck: time.Hour, Poll: 500 * time.Millisecond, Mark: " of " + t.Name()}}
		next := "next" + r.joins.Mark
		if wakes {
			rounds, r.joins.Poll, r.joins.Channel = 20, 10*time.Second, "joins of "+f.DB.Schema
			notifier, err := wakepgx.NewNotifier(f.DB.DB, wakepgx.NotifierConfig{Channel: r.joins.Channel}, nil)
			f.NoError(err)
			defer func() { f.NoError(notifier.Close()) }()
		}
		r.start()
		r.warmUp(next)
		c := f.Joins(func(c *join.Config) { c.WaitTopic = join.DefaultWaitTopic + r.joins.Mark })
		var l latencies
		for i := 1; i <= rounds; i++ {
			started := time.Now()
			f.Enqueue(outbox.Message{Topic: next, Payload: fmt.Append(nil, 2*i)})
			r.followed(2 * i)
			l.plain = append(l.plain, time.Since(started))

			id, last := f.lastStep()
			_, err := c.EnqueueWait(f.Context(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: next, Payload: fmt.Append(nil, 2*i+1)}})
			f.NoError(err)
			f.Empty(f.Settle(suite.Settled(outbox.Ack, last)...))
			started = time.Now()
			r.followed(2*i + 1)
			l.join = append(l.join, time.Since(started))
		}
		r.stop()
		if wakes {
			f.comesAtOnce(l)
		} else {
			t.Log("it polls every", r.joins.Poll, l)
		}
	})
}

// warmUp publishes until the worker has heard of it: it begins to listen in the background.
func (r *killRun) warmUp(topic string) {
	r.T.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case line := <-r.lines:
			if r.read(line).event == killFollowed {
				return
			}
		case <-again.C:
			r.Enqueue(outbox.Message{Topic: topic, Payload: []byte("0")})
		case <-time.After(r.patience):
			r.FailNow("the worker has heard of nothing")
		}
	}
}

// followed waits until a message has reached the worker's handler.
func (r *killRun) followed(message int) {
	r.T.Helper()
	for news := range r.all() {
		if news.event == killFollowed && news.message == message {
			return
		}
	}
}
