package stores_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/stores"
)

// inStep has a strategy choose only when every store wants a turn and has nothing out, so that its order does not depend on which is quicker,
// and notes what it chose.
type inStep struct {
	strategy stores.SelectionStrategy
	stores   int

	mu     sync.Mutex
	chosen []string
}

func (s *inStep) Next(candidates []stores.Candidate, last stores.Turn) (index, limit int) {
	if len(candidates) < s.stores {
		return -1, 0
	}
	for _, c := range candidates {
		if c.State != stores.Ready || c.InFlight > 0 {
			return -1, 0
		}
	}
	index, limit = s.strategy.Next(candidates, last)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chosen = append(s.chosen, candidates[index].ID)
	return index, limit
}

func (s *inStep) choices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.chosen...)
}

// choicesOf drains three stores, of two batches each, under a strategy.
func choicesOf(f *fixture, strategy stores.SelectionStrategy, n int) []string {
	tenants := f.tenants("a", "b", "c")
	for _, x := range tenants {
		x.EnqueueN("t", 4)
	}
	steps := &inStep{strategy: strategy, stores: len(tenants)}
	s := f.everywhere(f.static(tenants...), nil, func(c *stores.SubscriberConfig) {
		c.Strategy, c.Concurrency, c.Subscriber.MaxInFlight = steps, 1, 2
	})
	messages := f.subscribeAll(s, "t")
	for range 12 {
		f.Receive(messages).Ack()
	}
	f.Eventually(func() bool { return len(steps.choices()) >= n }, suite.Patience, suite.Tick)
	return steps.choices()[:n]
}

// chooses asserts in which order a strategy chooses the stores. A claim that takes longer than a second gives up its turn, so
// a machine that has stood still is given another chance.
func chooses(f *fixture, strategy stores.SelectionStrategy, want ...string) {
	f.T.Helper()
	var got []string
	for range 3 {
		if got = choicesOf(f, strategy, len(want)); slices.Equal(got, want) {
			return
		}
		f.T.Logf("chose %v", got)
	}
	f.Equal(want, got)
}

func TestOBX061_AStrategyChoosesTheStoreToPoll(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		for _, x := range tenants {
			x.EnqueueN("t", 3)
		}
		s := f.everywhere(f.static(tenants...), nil, func(c *stores.SubscriberConfig) { c.Strategy = only("b") })
		messages := f.subscribeAll(s, "t")
		for range 3 {
			f.receiveFrom(messages, "b")
		}
		tenants[1].allDone()
		f.Zero(statusOf(s, "a").Claims)
		f.Positive(statusOf(s, "b").Claims)
	})
}

// only is a strategy with one store.
type only string

func (o only) Next(candidates []stores.Candidate, _ stores.Turn) (index, limit int) {
	for i, c := range candidates {
		if c.ID == string(o) && c.State == stores.Ready {
			return i, 1
		}
	}
	return -1, 0
}

func TestOBX062_RoundRobinTakesOneBatchOfEachStoreInTurn(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		chooses(f, stores.RoundRobin{}, "a", "b", "c", "a", "b", "c", "a", "b", "c")
	})
}

func TestOBX063_DrainFirstStaysUntilAStoreIsEmpty(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		chooses(f, stores.DrainFirst{}, "a", "a", "a", "b", "b", "b", "c", "c", "c")
	})
}

// What the strategies answer, case by case.
func TestOBX061_StrategiesAnswer(t *testing.T) {
	list := func(states ...stores.CandidateState) (candidates []stores.Candidate) {
		for i, state := range states {
			candidates = append(candidates, stores.Candidate{ID: string(rune('a' + i)), Weight: 1, Total: 100, State: state})
		}
		return candidates
	}
	const ready, waiting, taken, away = stores.Ready, stores.Waiting, stores.Taken, stores.Away
	for name, c := range map[string]struct {
		strategy   stores.SelectionStrategy
		candidates []stores.Candidate
		last       stores.Turn
		want       int
	}{
		"round robin, nothing":                {stores.RoundRobin{}, nil, stores.Turn{}, -1},
		"round robin, none ready":             {stores.RoundRobin{}, list(waiting, taken, away), stores.Turn{Store: "a"}, -1},
		"round robin, the first":              {stores.RoundRobin{}, list(ready, ready), stores.Turn{}, 0},
		"round robin, after the last":         {stores.RoundRobin{}, list(ready, ready), stores.Turn{Store: "b", Messages: 9}, 0},
		"round robin, passes over":            {stores.RoundRobin{}, list(ready, away, waiting, ready), stores.Turn{Store: "a"}, 3},
		"round robin, again if alone":         {stores.RoundRobin{}, list(ready, away), stores.Turn{Store: "a"}, 0},
		"round robin, the last is gone":       {stores.RoundRobin{}, list(ready, ready), stores.Turn{Store: "x"}, 0},
		"drain first, stays":                  {stores.DrainFirst{}, list(ready, ready), stores.Turn{Store: "b", Messages: 1}, 1},
		"drain first, moves on when empty":    {stores.DrainFirst{}, list(ready, ready), stores.Turn{Store: "a"}, 1},
		"drain first, waits for its handlers": {stores.DrainFirst{}, list(waiting, ready), stores.Turn{Store: "a", Messages: 1}, -1},
		"drain first, leaves what fails":      {stores.DrainFirst{}, list(ready, ready), stores.Turn{Store: "a", Messages: 1, Failed: true}, 1},
		"drain first, leaves what is away":    {stores.DrainFirst{}, list(away, ready), stores.Turn{Store: "a", Messages: 1}, 1},
		"drain first, leaves another's":       {stores.DrainFirst{}, list(taken, ready), stores.Turn{Store: "a", Messages: 1}, 1},
		"drain first, the last is gone":       {stores.DrainFirst{}, list(ready), stores.Turn{Store: "x", Messages: 1}, 0},
		"drain first, nothing":                {stores.DrainFirst{}, nil, stores.Turn{Store: "x", Messages: 1}, -1},
	} {
		index, _ := c.strategy.Next(c.candidates, c.last)
		require.Equal(t, c.want, index, name)
	}
}

// Fair goes by weight, whatever the size of the batches, and nobody saves up while idle.
func TestFairGoesByWeight(t *testing.T) {
	fair, err := stores.NewFair(stores.FairConfig{})
	require.NoError(t, err)
	candidates := []stores.Candidate{
		{ID: "a", Weight: 3, Total: 1000, State: stores.Ready}, {ID: "b", Weight: 1, Total: 1000, State: stores.Ready},
		{ID: "idle", Weight: 1, Total: 1000},
	}
	batch := map[string]int64{"a": 10, "b": 50, "idle": 10}
	var last stores.Turn
	run := func(messages int64) (claimed map[string]int64) {
		claimed = map[string]int64{}
		for total := int64(0); total < messages; {
			at, limit := fair.Next(candidates, last)
			require.Equal(t, 500, limit, "half of all")
			c := &candidates[at]
			c.Claimed += batch[c.ID]
			claimed[c.ID] += batch[c.ID]
			total += batch[c.ID]
			last = stores.Turn{Store: c.ID, Messages: int(batch[c.ID])}
		}
		return claimed
	}
	claimed := run(40_000)
	require.InDelta(t, 3, float64(claimed["a"])/float64(claimed["b"]), 0.1)
	candidates[2].State = stores.Ready
	claimed = run(50_000)
	require.InDelta(t, 10_000, claimed["idle"], 500, "a fifth, and nothing for the time before")
	require.InDelta(t, 3, float64(claimed["a"])/float64(claimed["b"]), 0.1)

	candidates[0].InFlight, candidates[1].InFlight, candidates[2].InFlight = 500, 499, 500
	at, limit := fair.Next(candidates, last)
	require.Equal(t, []int{1, 1}, []int{at, limit}, "the one that is below its share, up to it")
	candidates[1].InFlight = 500
	at, _ = fair.Next(candidates, last)
	require.Equal(t, -1, at)

	// Another store under the same identifier begins anew.
	candidates[0].InFlight, candidates[0].Claimed = 0, 0
	at, _ = fair.Next(candidates[:1], last)
	require.Zero(t, at)

	for _, share := range []float64{-1, 1.1} {
		_, err := stores.NewFair(stores.FairConfig{MaxShare: share})
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "FairConfig.MaxShare", bad.Field)
	}
}

// A store with a backlog has its turn among many that are polled for little, each of which has its own once a round.
func TestFairPassesOverWhatIsEmpty(t *testing.T) {
	fair, err := stores.NewFair(stores.FairConfig{})
	require.NoError(t, err)
	const many, batch, rounds = 20, 100, 50
	candidates := []stores.Candidate{{ID: "busy", Weight: 1, Total: 1000, State: stores.Ready}}
	for i := range many {
		candidates = append(candidates, stores.Candidate{ID: fmt.Sprint(i), Weight: 1, Total: 1000, State: stores.Ready})
	}
	chosen := map[string]int{}
	var last stores.Turn
	for turn := range rounds * len(candidates) {
		at, _ := fair.Next(candidates, last)
		c := &candidates[at]
		chosen[c.ID]++
		last = stores.Turn{Store: c.ID, Messages: turn % 2} // one, or nothing
		if c.ID == "busy" {
			last.Messages = batch
		} else {
			c.Emptied++
		}
		c.Claimed += int64(last.Messages)
	}
	for id, turns := range chosen {
		require.InDelta(t, rounds, turns, 2, id)
	}
}

// A tenant whose handlers are stuck has its share and no more: the others go on.
func TestFairLeavesRoomForOthers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("stuck", "quick")
		tenants[0].EnqueueN("t", 30)
		fair, err := stores.NewFair(stores.FairConfig{MaxShare: 0.5})
		f.NoError(err)
		s := f.everywhere(f.static(tenants...), nil, func(c *stores.SubscriberConfig) { c.Strategy, c.MaxInFlight = fair, 10 })
		messages := f.subscribeAll(s, "t")
		stuck := f.ReceiveN(messages, 5)
		tenants[1].EnqueueN("t", 20)
		for range 20 {
			f.receiveFrom(messages, "quick")
		}
		tenants[1].allDone()
		f.Equal(5, statusOf(s, "stuck").InFlight)
		for _, msg := range stuck {
			f.Equal("stuck", f.storeOfMessage(msg))
			msg.Ack()
		}
		for range 25 {
			f.receiveFrom(messages, "stuck")
		}
		tenants[0].allDone()
	})
}

// All stores together never have more out than MaxInFlight.
func TestStoresShareMaxInFlight(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b", "c")
		for _, x := range tenants {
			x.EnqueueN("t", 10)
		}
		s := f.everywhere(f.static(tenants...), nil, func(c *stores.SubscriberConfig) { c.MaxInFlight = 7 })
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		defer cancel()
		messages, err := s.Subscribe(ctx, "t")
		f.NoError(err)
		out := f.ReceiveN(messages, 7)
		var held int64
		for _, x := range tenants {
			held += x.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.InProgress)
		}
		f.EqualValues(7, held)
		for _, msg := range out {
			msg.Ack()
		}
		for range 23 {
			f.Receive(messages).Ack()
		}
		for _, x := range tenants {
			x.allDone()
		}
		f.Eventually(func() bool { return statusOf(s, "a").InFlight+statusOf(s, "b").InFlight+statusOf(s, "c").InFlight == 0 }, suite.Patience, suite.Tick)
	})
}
