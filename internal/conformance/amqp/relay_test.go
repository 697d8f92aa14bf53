package amqp_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// relayPlan is the size of the two big tests: small in the normal suite, full where OUTBOX_TEST_RELAY says so.
type relayPlan struct {
	messages, cuts, kills int
	stop                  time.Duration
}

func newRelayPlan() relayPlan {
	if os.Getenv("OUTBOX_TEST_RELAY") == "full" {
		return relayPlan{messages: 50_000, cuts: 5, kills: 10, stop: 20 * time.Second}
	}
	return relayPlan{messages: 2_000, cuts: 5, kills: 2, stop: time.Second}
}

// batch is small enough that much is left to do after each.
func (p relayPlan) batch() int { return min(500, p.messages/50) }

// A relay is an outbox, a broker and what forwards from one to the other.
type relay struct {
	*testoutbox.Outbox
	broker *broker
	queue  string
}

func forEachRelay(t *testing.T, url func(t testing.TB) string, test func(t *testing.T, r *relay)) {
	t.Helper()
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		b := &broker{require.New(t), t, url(t)}
		test(t, &relay{o, b, b.queue()})
	})
}

func (r *relay) config(options ...func(*forwarder.Config)) forwarder.Config {
	config := forwarder.Config{Topics: []string{r.queue}, RetryMin: 5 * time.Millisecond, RetryMax: 200 * time.Millisecond, Subscriber: r.Subscriber()}
	for _, option := range options {
		option(&config)
	}
	return config
}

// start forwards through a publisher until the test ends.
func (r *relay) start(p message.Publisher, options ...func(*forwarder.Config)) *forwarder.Forwarder {
	r.T.Helper()
	fw, err := forwarder.New(r.DB.DB, p, r.config(options...), nil)
	r.NoError(err)
	ended := make(chan error, 1)
	go func() { ended <- fw.Run(context.WithoutCancel(r.T.Context())) }()
	r.T.Cleanup(func() {
		if err := errors.Join(fw.Close(), <-ended); err != nil {
			r.T.Errorf("closing the forwarder: %v", err)
		}
	})
	<-fw.Running()
	return fw
}

// directed does something, beside publishing, when so many messages have been confirmed.
type directed struct {
	message.Publisher

	mu        sync.Mutex
	steps     []step
	confirmed int
}

type step struct {
	at int
	do func()
}

func (d *directed) Publish(topic string, messages ...*message.Message) error {
	d.next()
	err := d.Publisher.Publish(topic, messages...)
	var batch *forwarder.BatchError
	exact := errors.As(err, &batch)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range messages {
		if err == nil || exact && batch.Errs[i] == nil {
			d.confirmed++
		}
	}
	return err
}

// next does the step that is due; who publishes beside it waits until it is done.
func (d *directed) next() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.steps) > 0 && d.confirmed >= d.steps[0].at {
		d.steps[0].do()
		d.steps = d.steps[1:]
	}
}

// The broker is stopped and started in the middle, and the connection cut again and again: nothing is lost, and no attempt
// is spent.
func TestLong_TheRelayLosesNothingToABrokerThatComesAndGoes(t *testing.T) {
	plan := newRelayPlan()
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		node := testbroker.Node(t)
		b := &broker{require.New(t), t, node.URL()}
		r := &relay{o, b, b.name("queue")}
		proxy := testbroker.NewProxy(t, node.URL())
		p := b.publisher(declares(r.queue), func(c *amqp.Config) { c.URL = proxy.URL })
		r.Enqueue(r.queue, 0, plan.messages)

		var steps []step // by how many are confirmed
		for i := range plan.cuts {
			steps = append(steps, step{plan.messages * (2*i + 1) / (2 * plan.cuts), func() {
				proxy.CutAfter(plan.batch() * 100) // in the middle of the batch, about
			}})
		}
		stopped := make(chan error, 1)
		steps = append(steps, step{plan.messages * 2 / 5, func() { stopped <- node.Stop() }})
		slices.SortFunc(steps, func(a, b step) int { return a.at - b.at })

		acked := make(chan int, plan.messages)
		started := time.Now()
		fw := r.start(&directed{Publisher: p, steps: steps}, func(c *forwarder.Config) {
			c.BatchSize = plan.batch()
			c.Subscriber.Hooks.OnSettle = func(e outbox.SettleEvent) { acked <- e.Outcomes[outbox.Ack] }
		})
		timer := time.NewTimer(patience)
		defer timer.Stop()
		for done := 0; done < plan.messages; {
			select {
			case n := <-acked:
				done += n
			case err := <-stopped:
				b.NoError(err)
				b.Eventually(func() bool { return fw.State() == forwarder.Open }, patience, time.Millisecond)
				<-time.After(plan.stop)
				b.Equal(forwarder.Open, fw.State())
				b.LessOrEqual(r.Count(outbox.Done), plan.messages*3/5)
				b.NoError(node.Start(t.Context()))
			case <-timer.C:
				b.FailNow("nothing more arrives")
			}
			timer.Reset(patience)
		}
		took := time.Since(started)
		b.Equal(plan.cuts, proxy.Cuts())
		r.Becomes(outbox.Done, plan.messages)
		b.Equal(forwarder.Closed, fw.State())
		b.Zero(r.Attempts(), "an outage spends no attempt")
		duplicates := b.allArrived(b.drain(r.queue), plan.messages)
		t.Logf("%d messages, the broker away for %v (and its start), the connection cut %d times: lost 0, attempts spent 0, %d arrived twice or more; %v",
			plan.messages, plan.stop, plan.cuts, duplicates, took.Round(time.Millisecond))
	})
}

// The whole broker is away from the beginning, and comes.
func TestLong_ABrokerThatComesLater(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		node := testbroker.Node(t)
		b := &broker{require.New(t), t, node.URL()}
		b.NoError(node.Stop())
		r := &relay{o, b, b.name("queue")}
		fw := r.start(b.publisher(declares(r.queue)))
		r.Enqueue(r.queue, 0, 10)
		b.Eventually(func() bool { return fw.State() == forwarder.Open }, patience, time.Millisecond)
		b.NoError(node.Start(t.Context()))
		r.Becomes(outbox.Done, 10)
		b.Zero(r.Attempts())
		b.Zero(b.allArrived(b.drain(r.queue), 10))
	})
}

// A queue that is deleted costs attempts, for it may never come back; what is left of them is enough if it does.
func TestADeletedQueueRefusesAndTakesAgain(t *testing.T) {
	forEachRelay(t, testbroker.URL, func(t *testing.T, r *relay) {
		b := r.broker
		b.declare(r.queue, nil)
		fw := r.start(b.publisher(), func(c *forwarder.Config) {
			c.Subscriber.MaxAttempts = -1
			c.Subscriber.Backoff = func(int) time.Duration { return 10 * time.Millisecond }
		})
		r.Enqueue(r.queue, 0, 10)
		r.Becomes(outbox.Done, 10)
		b.delete(r.queue)
		r.Enqueue(r.queue, 10, 10)
		b.Eventually(func() bool {
			refused := 0
			for _, row := range r.Rows() {
				if row.RetryCount > 1 && row.LastError != "" {
					b.Contains(row.LastError, amqp.ErrUnroutable.Error())
					b.Contains(row.LastError, r.queue)
					refused++
				}
			}
			return refused == 10
		}, patience, 10*time.Millisecond)
		b.Equal(forwarder.Closed, fw.State(), "it is no outage")
		b.declare(r.queue, nil)
		r.Becomes(outbox.Done, 20)
		b.Len(b.drain(r.queue), 10)
	})
}

func TestAnUnroutableKeyFailsInTheEndWithTheReason(t *testing.T) {
	forEachRelay(t, testbroker.URL, func(t *testing.T, r *relay) {
		r.start(r.broker.publisher(), func(c *forwarder.Config) { c.Subscriber.MaxAttempts = 3 })
		r.Enqueue(r.queue, 0, 2)
		r.Becomes(outbox.Failed, 2)
		for _, row := range r.Rows() {
			r.Equal(2, row.RetryCount)
			r.Contains(row.LastError, amqp.ErrUnroutable.Error())
			r.Contains(row.LastError, r.queue)
		}
	})
}

// One message that closes the channel, and one that is too large, fail for good; all the others arrive.
func TestAPoisonMessageFailsAndTheOthersArrive(t *testing.T) {
	forEachRelay(t, testbroker.URL, func(t *testing.T, r *relay) {
		r.Enqueue(r.queue, 0, 300)
		_, err := r.Outbox.Outbox.Enqueue(t.Context(), r.DB.DB,
			outbox.Message{UUID: "poison", Topic: r.queue, Headers: map[string]string{"CC": "is no list"}},
			outbox.Message{UUID: "large", Topic: r.queue, Payload: make([]byte, 2000)})
		r.NoError(err)
		r.Enqueue(r.queue, 300, 300)
		r.start(r.broker.publisher(declares(r.queue), func(c *amqp.Config) { c.MaxPayload = 1999 }))
		r.Becomes(outbox.Done, 600)
		r.Becomes(outbox.Failed, 2)
		rows := r.Rows()
		poison := slices.IndexFunc(rows, func(row testoutbox.Row) bool { return row.UUID == "poison" })
		r.Contains(rows[poison].LastError, "CC")
		r.Contains(rows[poison+1].LastError, "2000 bytes")
		r.Zero(r.Attempts())
		r.broker.allArrived(r.broker.drain(r.queue), 600)
	})
}

func TestWrongCredentialsAreAnOutage(t *testing.T) {
	forEachRelay(t, testbroker.URL, func(t *testing.T, r *relay) {
		p := r.broker.publisher(func(c *amqp.Config) { c.URL = "amqp://nobody:secret@" + testbroker.Address(t, r.broker.url) })
		r.Enqueue(r.queue, 0, 3)
		fw := r.start(p)
		r.Eventually(func() bool { return fw.State() == forwarder.Open }, patience, time.Millisecond)
		r.NoError(fw.Close())
		for _, row := range r.Rows() {
			r.Equal(outbox.Ready, row.Status)
			r.Zero(row.RetryCount)
		}
	})
}

// Close does not wait for a broker that is silent, and what it held is there for the next.
func TestCloseDoesNotWaitForASilentBroker(t *testing.T) {
	forEachRelay(t, testbroker.URL, func(t *testing.T, r *relay) {
		proxy := testbroker.NewProxy(t, r.broker.url)
		p := r.broker.publisher(declares(r.queue), func(c *amqp.Config) { c.URL = proxy.URL })
		r.NoError(p.Publish(r.queue, messages(1)...))
		proxy.Hold()
		fw := r.start(p, func(c *forwarder.Config) { c.Subscriber.DrainTimeout = 50 * time.Millisecond })
		r.Enqueue(r.queue, 0, 3)
		r.Eventually(func() bool { return r.broker.waiting(r.queue) > 1 }, patience, 10*time.Millisecond)
		r.Positive(r.Count(outbox.InProgress))
		r.NoError(fw.Close())
		r.Equal(3, r.Count(outbox.Ready))
		r.Zero(r.Attempts())
		proxy.Release()
	})
}
