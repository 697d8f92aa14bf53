package stores

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A scheduler shares turns to claim among the stores of a Subscriber. Each of its lanes runs one claim at a time; the
// strategy chooses whose. Stores whose breaker is open are retried outside the lanes, so that a store that hangs takes no
// lane from the others. It has no goroutine: every change deals the turns that became possible.
type scheduler struct {
	strategy    SelectionStrategy
	maxInFlight int
	patience    time.Duration // how long a claim may keep a lane

	mu         sync.Mutex
	lanes      []lane
	members    []*member // in the order of the provider
	rank       map[*Store]int
	inFlight   int // messages of all stores, claimed or being claimed
	probing    int // tries of stores whose breaker is open
	candidates []Candidate
}

// A lane is a polling loop: it remembers its last turn.
type lane struct {
	last Turn
	turn *turn // under way, or nil
}

// A turn is a running claim, from Take to Claimed.
type turn struct {
	lane     *lane // nil for a retry of a store whose breaker is open
	reserved int   // places reserved for what it claims
	freed    bool  // it took too long, and others have its lane and places
	timer    *time.Timer
}

// lanePatience is how long a claim may keep its lane. After that the store counts as hanging, and others go on without it.
const lanePatience = time.Second

func newScheduler(config *SubscriberConfig) *scheduler {
	return &scheduler{
		strategy: config.Strategy, maxInFlight: config.MaxInFlight, patience: min(lanePatience, config.Subscriber.ClaimTimeout),
		lanes: make([]lane, config.Concurrency), rank: map[*Store]int{},
	}
}

// order puts the members into the order of the provider.
func (s *scheduler) order(stores []*Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rank = make(map[*Store]int, len(stores))
	for i, store := range stores {
		s.rank[store] = i
	}
	s.sort()
}

func (s *scheduler) sort() {
	slices.SortStableFunc(s.members, func(a, b *member) int { return cmp.Compare(s.rank[a.store], s.rank[b.store]) })
}

func (s *scheduler) add(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
	s.sort()
}

// remove takes a member out. Its messages in flight still count until they are answered.
func (s *scheduler) remove(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = slices.DeleteFunc(s.members, func(other *member) bool { return other == m })
	s.deal()
}

// deal gives turns to members that want one, while there are lanes and places. The caller holds the lock.
func (s *scheduler) deal() {
	ready := func(m *member) bool { return m.want != nil && m.breaker.state == Closed }
	if slices.ContainsFunc(s.members, ready) {
		s.dealLanes()
	}
	now := time.Now()
	for _, m := range s.members {
		if m.want != nil && m.breaker.state == Open && !now.Before(m.breaker.until) && s.probing < len(s.lanes) && s.room() > 0 {
			s.probing++
			s.grant(m, &turn{reserved: 1})
		}
	}
}

func (s *scheduler) dealLanes() {
	free := 0
	for i := range s.lanes {
		if s.lanes[i].turn == nil {
			free++
		}
	}
	for i := range s.lanes {
		if l := &s.lanes[i]; l.turn == nil && s.room() > 0 {
			s.dealTo(l, free)
			free--
		}
	}
}

// dealTo lets the strategy choose a store for a lane. The places are divided evenly among the free lanes.
func (s *scheduler) dealTo(l *lane, free int) {
	s.candidates = s.candidates[:0]
	for _, m := range s.members {
		s.candidates = append(s.candidates, m.candidate())
	}
	index, limit := s.strategy.Next(s.candidates, l.last)
	if index < 0 || index >= len(s.members) || s.candidates[index].State != Ready {
		return
	}
	m := s.members[index]
	n := min(max(1, m.want()), (s.room()+free-1)/free)
	if limit > 0 {
		n = min(n, limit)
	}
	l.turn = &turn{lane: l, reserved: n}
	s.grant(m, l.turn)
}

func (s *scheduler) room() int { return s.maxInFlight - s.inFlight }

func (s *scheduler) grant(m *member, t *turn) {
	m.want, m.turn = nil, t
	m.inFlight += t.reserved
	s.inFlight += t.reserved
	t.timer = time.AfterFunc(s.patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free(m, t)
		s.deal()
	})
	m.granted <- t.reserved
}

// free takes back the lane and the places of a turn, if that has not been done.
func (s *scheduler) free(m *member, t *turn) {
	if t.freed {
		return
	}
	t.freed = true
	t.timer.Stop()
	m.inFlight -= t.reserved
	s.inFlight -= t.reserved
	if t.lane == nil {
		s.probing--
	} else {
		t.lane.turn = nil
	}
}
