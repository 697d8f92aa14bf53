package amqp_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// inboxPlan is the size of the test: small in the normal suite, full where OUTBOX_TEST_INBOX says so.
type inboxPlan struct {
	messages, copies, consumers, kills int
}

func newInboxPlan(backend string) inboxPlan {
	switch {
	case os.Getenv("OUTBOX_TEST_INBOX") == "full":
		return inboxPlan{messages: 1000, copies: 20, consumers: 3, kills: 15}
	case backend == testdb.SQLServer: // which may be a slow one
		return inboxPlan{messages: 10, copies: 20, consumers: 3, kills: 2}
	default:
		return inboxPlan{messages: 50, copies: 20, consumers: 3, kills: 3}
	}
}

// RabbitMQ delivers each message many times to consumers that are killed: behind the inbox each has its effects once, as many
// as it has and wherever its consumer died. A deduplicator in place of the inbox loses messages:
// TestTrap_InboxAMessageThatFailedIsHandledAgain in internal/conformance.
func TestLong_InboxEachEffectHappensOnceBehindRabbitMQ(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		b := &broker{require.New(t), t, testbroker.URL(t)}
		r := &inboxRun{Outbox: o, inboxPlan: newInboxPlan(o.DB.Name), broker: b, queue: b.queue(),
			random: rand.New(rand.NewPCG(seed, 0)), told: map[string]int{}, all: make(chan testprocess.Line)}
		r.install()
		r.publish()
		started := time.Now()
		r.run()
		took := time.Since(started)
		seen := r.check()
		t.Logf("%d messages, %d times each, %d consumers killed as they told %v: each effect once, %d duplicates suppressed, "+
			"of which %d came again after a commit; %d handlers were rolled back and ran again, %d deliveries returned; %v",
			r.messages, r.copies, len(r.killed), r.killed, seen-r.messages, seen-r.messages*r.copies,
			r.told[toldHandled]-r.messages, r.told[toldReturned], took.Round(time.Millisecond))
	})
}

// An inboxRun starts consumers, kills them and starts others, until the queue is empty.
type inboxRun struct {
	*testoutbox.Outbox
	inboxPlan
	broker *broker
	queue  string
	random *rand.Rand

	alive  []*testprocess.Process
	all    chan testprocess.Line
	told   map[string]int // how often
	killed []string       // what the dead have told last
}

func (r *inboxRun) inbox() inbox.Config {
	return inbox.Config{Dialect: testoutbox.Dialect(r.DB.Name), Schema: r.DB.Schema}
}

// install creates the inbox and the tables of the application, which have no unique key.
func (r *inboxRun) install() {
	r.T.Helper()
	r.NoError(inbox.Migrate(r.T.Context(), r.DB.DB, r.inbox()))
	r.Exec("CREATE TABLE %s (id INT NOT NULL)", r.effects())
	r.Exec("CREATE TABLE %s (total INT NOT NULL)", r.balance())
	r.Exec("INSERT INTO %s (total) VALUES (0)", r.balance())
}

func (r *inboxRun) effects() string { return r.Table("effects") }
func (r *inboxRun) balance() string { return r.Table("balance") }

// publish publishes all copies of the messages, the UUIDs of which are 0, 1, 2 …, shuffled, but so that those of one
// message are near enough to be handled at once.
func (r *inboxRun) publish() {
	r.T.Helper()
	const near = 10
	p := r.broker.publisher(declares(r.queue))
	for some := range slices.Chunk(messages(r.messages), near) {
		var copies []*message.Message
		for _, msg := range some {
			for range r.copies {
				copies = append(copies, msg.Copy())
			}
		}
		r.random.Shuffle(len(copies), func(i, j int) { copies[i], copies[j] = copies[j], copies[i] })
		r.NoError(p.Publish(r.queue, copies...))
	}
}

// run has the queue consumed until nothing is left. What the killed ones held comes again, some of it in a later round.
func (r *inboxRun) run() {
	thresholds := r.thresholds()
	points := []string{toldHandled, toldCommitted} // before the commit, and between it and the acknowledgement, in turn
	for left := r.left(); left > 0; left = r.left() {
		for range r.consumers {
			r.start()
		}
		for until := r.told[toldCommitted] + left; r.told[toldCommitted] < until; {
			news := r.next()
			reached := len(r.killed) < len(thresholds) && r.told[toldCommitted] >= thresholds[len(r.killed)]
			if reached && (news.Text == points[len(r.killed)%2] || r.told[toldHandled] >= r.messages) {
				r.kill(news)
			} else {
				r.answer(news)
			}
		}
		r.stop()
	}
	r.Len(r.killed, len(thresholds), "all was done before all kills")
}

// left is how many messages are in the queue, once nobody holds any.
func (r *inboxRun) left() (n int) {
	r.T.Helper()
	r.Eventually(func() bool {
		q := r.broker.inspect(r.queue)
		n = q.Messages
		return q.Consumers == 0
	}, patience, 10*time.Millisecond)
	return n
}

// thresholds say after how many deliveries the next consumer is killed. The last tenth is left to finish in peace.
func (r *inboxRun) thresholds() []int {
	thresholds := make([]int, r.kills)
	for i := range thresholds {
		thresholds[i] = r.random.IntN(r.messages * r.copies * 9 / 10)
	}
	slices.Sort(thresholds)
	return thresholds
}

func (r *inboxRun) start() {
	r.T.Helper()
	r.alive = append(r.alive, testprocess.Start(r.T, consumerVariable,
		consumerJob{r.DB.Name, r.DB.DriverName, r.DB.DSN, r.DB.Schema, r.broker.url, r.queue, r.effects(), r.balance()}, r.all))
}

// next waits for news of any consumer. That one has ended is an error, unless it was killed.
func (r *inboxRun) next() testprocess.Line {
	r.T.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case news := <-r.all:
		r.told[news.Text]++
		if news.Text == "" && slices.Contains(r.alive, news.From) {
			r.FailNow("a consumer ended by itself", "%v", news.From.State())
		}
		return news
	case <-timer.C:
		r.FailNow("no news of any consumer", "told so far: %v, kills: %v", r.told, r.killed)
		panic("not reached")
	}
}

// kill kills, as nothing can be caught, the consumer that has told something, and starts another.
func (r *inboxRun) kill(last testprocess.Line) {
	r.T.Helper()
	if !slices.Contains(r.alive, last.From) {
		return
	}
	r.NoError(last.From.Kill())
	r.killed = append(r.killed, last.Text)
	r.alive = slices.DeleteFunc(r.alive, func(p *testprocess.Process) bool { return p == last.From })
	r.ended(last.From)
	r.start()
}

// answer lets a consumer commit what it has told of.
func (r *inboxRun) answer(news testprocess.Line) {
	r.T.Helper()
	if news.Text == toldHandled && slices.Contains(r.alive, news.From) {
		_, err := news.From.Stdin.Write([]byte("\n"))
		r.NoError(err)
	}
}

// ended waits for the ends of processes.
func (r *inboxRun) ended(processes ...*testprocess.Process) {
	r.T.Helper()
	for left := len(processes); left > 0; {
		news := r.next()
		r.answer(news)
		if news.Text == "" {
			left--
		}
	}
}

// stop lets all consumers finish.
func (r *inboxRun) stop() {
	r.T.Helper()
	stopping := r.alive
	r.alive = nil
	for _, p := range stopping {
		r.NoError(p.Stdin.Close())
	}
	r.ended(stopping...)
	for _, p := range stopping {
		r.True(p.State().Success(), "a consumer ended with %v", p.State())
	}
}

// check asks the tables, not the consumers, and answers how many deliveries the inbox has seen.
func (r *inboxRun) check() (seen int) {
	r.T.Helper()
	r.Equal(r.messages, r.Number("SELECT COUNT(*) FROM %s", r.effects()), "effects")
	r.Equal(r.messages, r.Number("SELECT COUNT(DISTINCT id) FROM %s", r.effects()), "messages that had one")
	r.Equal(r.messages, r.Number("SELECT total FROM %s", r.balance()), "the effects, added up")
	r.Equal(r.messages, r.Number("SELECT COUNT(*) FROM {all}"), "messages sent on")
	r.Equal(r.messages, r.Number("SELECT COUNT(DISTINCT {uuid}) FROM {all}"), "messages whose own was sent on")

	in, err := inbox.New(r.DB.DB, r.inbox(), nil)
	r.NoError(err)
	keys := make([]inbox.Key, r.messages)
	for i := range keys {
		keys[i] = inbox.Key{Source: bookIdentity.Source, MessageID: fmt.Sprint(i), Handler: bookIdentity.Handler}
	}
	entries, err := in.Get(r.T.Context(), keys...)
	r.NoError(err)
	r.Len(entries, r.messages)
	for _, e := range entries {
		r.Equal(outbox.Done, e.Status)
		r.GreaterOrEqual(e.Seen, r.copies, "each delivery has passed the inbox")
		seen += e.Seen
	}
	atHandled := 0
	for _, event := range r.killed {
		if event == toldHandled {
			atHandled++
		}
	}
	r.GreaterOrEqual(r.told[toldHandled]-r.messages, atHandled, "who dies before the commit has done nothing")
	return seen
}
