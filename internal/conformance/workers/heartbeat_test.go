package workers_test

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// Workers tell that they live, what they hold, and that they have ended. One that starts again is the same worker.
func TestWorkersTellThatTheyLive(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		_, held := f.work("first")
		f.eventually(func() bool { return f.worker("first").lives }, "the first worker lives")
		second, _ := f.work("second", func(c *outbox.SubscriberConfig) { c.MaxInFlight = 1 })
		f.eventually(func() bool { return f.worker("second").lives }, "the second worker lives")
		first := f.worker("first")
		f.Less(first.number, f.worker("second").number)
		f.eventually(func() bool { return f.worker("first").seen > first.seen }, "another heartbeat comes")
		f.Equal(first.started, f.worker("first").started)

		f.NoError(second.Close())
		ended := f.worker("second")
		f.False(ended.lives)
		f.True(ended.stopped.Valid, "it says that it has ended")
		f.ordered(1, 2)
		msg := f.receive(held)
		f.Equal([]int{1, 2, 1}, []int{f.worker("first").leases, f.worker("first").messages, f.worker("first").streams})
		msg.Ack()
		f.receive(held).Ack()
		f.Becomes(outbox.Done, 2)
		f.eventually(func() bool { return f.worker("first").messages == 0 }, "it holds nothing")

		f.work("second")
		f.eventually(func() bool { return f.worker("second").lives }, "it lives again")
		again := f.worker("second")
		f.Equal(ended.number, again.number)
		f.Greater(again.started, ended.started)
		f.False(again.stopped.Valid)
	})
}

// A process that only makes plain calls has a number, and is never taken for a worker that lives.
func TestPlainCallsAreNoWorker(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		f.ordered(1, 1)
		_, err := f.Claim(t.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}})
		f.NoError(err)
		workers := f.list()
		f.Len(workers, 1)
		f.Equal(1, workers[0].messages)
		f.False(workers[0].lives)
		f.Zero(workers[0].seen)
		living, lower := f.beat("a worker", time.Minute)
		f.Equal([]int{1, 0}, []int{living, lower})
	})
}

// A worker whose heartbeats end counts as dead, and the janitor deletes it later. It keeps those that live, and those that lived
// a short time ago.
func TestPhase9_StaleWorkers(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		for i, name := range []string{"dead", "dead too", "alive"} {
			lives := time.Second
			if name == "alive" {
				lives = time.Hour
			}
			living, lower := f.beat(name, lives)
			f.LessOrEqual(living, i+1)
			f.LessOrEqual(lower, i)
		}
		f.eventually(func() bool { return !f.worker("dead too").lives }, "its heartbeat is over")
		living, lower := f.beat("new", time.Hour)
		f.Equal([]int{2, 1}, []int{living, lower})

		purged, err := f.PurgeOnce(t.Context(), outbox.JanitorConfig{Workers: time.Hour})
		f.NoError(err)
		f.Empty(purged)
		purged, err = f.PurgeOnce(t.Context(), outbox.JanitorConfig{Workers: time.Millisecond})
		f.NoError(err)
		f.Equal(map[string]int{"workers": 2}, purged)
		workers := f.list()
		f.Len(workers, 2)
		f.Equal([]string{"alive", "new"}, []string{workers[0].name, workers[1].name})
	})
}

// No number is given twice, even if that of the newest worker was to be purged.
func TestNumbersOfWorkersAreNotReused(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		f.beat("old", time.Millisecond)
		old := f.worker("old").number
		f.eventually(func() bool { return !f.worker("old").lives }, "its heartbeat is over")
		_, err := f.PurgeOnce(t.Context(), outbox.JanitorConfig{Workers: time.Millisecond})
		f.NoError(err)
		f.beat("new", time.Hour)
		f.Greater(f.worker("new").number, old)
	})
}
