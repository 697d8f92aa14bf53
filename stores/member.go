package stores

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// A member is a store in a scheduler: the Limiter of its Subscriber. The scheduler's lock guards everything but its constants.
type member struct {
	scheduler *scheduler
	store     *Store
	logger    watermill.LoggerAdapter
	timeout   time.Duration // for a claim that ignores its own
	granted   chan int      // has room for one

	breaker  breaker
	want     func() int // how many messages it could claim; nil while it does not want any
	turn     *turn      // under way, or nil
	inFlight int        // messages, claimed or being claimed
	claims   int64
	failures int64
	messages int64
	emptied  int64       // claims that left nothing
	retry    *time.Timer // when to look at the breaker again
	hung     *time.Timer // when the current claim counts as failed
	ended    bool
}

var _ seam.Limiter = (*member)(nil)

// hangGrace is how long after its timeout a claim that ignores it counts as failed.
const hangGrace = time.Second

func newMember(s *scheduler, store *Store, config *SubscriberConfig, logger watermill.LoggerAdapter) *member {
	return &member{
		scheduler: s, store: store, logger: logger.With(watermill.LogFields{"store": store.ID()}),
		timeout: config.Subscriber.ClaimTimeout + hangGrace, granted: make(chan int, 1),
		breaker: breaker{pauses: flow.Pauses{Shortest: config.RetryMin, Longest: config.RetryMax}, since: time.Now()},
	}
}

// candidate is the member as strategies see it.
func (m *member) candidate() Candidate {
	c := Candidate{ID: m.store.ID(), Weight: m.store.Weight(), Claimed: m.messages, Emptied: m.emptied, InFlight: m.inFlight, Total: m.scheduler.maxInFlight}
	switch {
	case m.breaker.state == Open, m.turn != nil && m.turn.freed:
		c.State = Away
	case m.turn != nil:
		c.State = Taken
	case m.want != nil:
		c.State = Ready
	}
	return c
}

// Acquire implements seam.Limiter.
func (m *member) Acquire(want func() int, stop <-chan struct{}) int {
	s := m.scheduler
	s.mu.Lock()
	m.want = want
	s.deal()
	s.mu.Unlock()
	select {
	case n := <-m.granted:
		m.begin()
		return n
	case <-stop:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.want = nil
	select {
	case <-m.granted: // at the same moment
		s.free(m, m.turn)
		m.turn = nil
		s.deal()
	default:
	}
	return 0
}

// begin watches for a claim that ignores its timeout.
func (m *member) begin() {
	s := m.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	t := m.turn
	m.hung = time.AfterFunc(m.timeout, func() { m.hangs(t) })
}

var errHung = errors.New("the database does not answer, and its driver does not heed the timeout")

func (m *member) hangs(t *turn) {
	m.scheduler.mu.Lock()
	opened := false
	if m.turn == t && !m.ended {
		opened = m.fail(errHung)
	}
	m.scheduler.mu.Unlock()
	m.log(opened, errHung, 0)
}

// Claimed implements seam.Limiter.
func (m *member) Claimed(messages int, err error) {
	s := m.scheduler
	s.mu.Lock()
	t := m.turn
	m.turn = nil
	m.hung.Stop()
	if m.ended {
		s.mu.Unlock()
		return
	}
	if !t.freed && t.lane != nil {
		t.lane.last = Turn{Store: m.store.ID(), Messages: messages, Failed: err != nil}
	}
	s.free(m, t)
	m.claims++
	m.messages += int64(messages)
	m.inFlight += messages
	s.inFlight += messages
	var opened bool
	var away time.Duration
	if err != nil {
		opened = m.fail(err)
	} else {
		away = m.breaker.succeeded()
		if messages < t.reserved {
			m.emptied++
		}
	}
	s.deal()
	s.mu.Unlock()
	m.log(opened, err, away)
}

// fail opens the breaker, or makes it wait longer. The caller holds the lock.
func (m *member) fail(err error) (opened bool) {
	m.failures++
	opened = m.breaker.failed(err)
	if m.retry != nil {
		m.retry.Stop()
	}
	if !m.ended {
		m.retry = time.AfterFunc(time.Until(m.breaker.until), func() {
			m.scheduler.mu.Lock()
			defer m.scheduler.mu.Unlock()
			m.scheduler.deal()
		})
	}
	return opened
}

// log writes one line when the breaker opens, and one when it closes.
func (m *member) log(opened bool, err error, away time.Duration) {
	if opened {
		m.logger.Error("A store does not answer; it is left alone and tried again from time to time", err, nil)
	}
	if away > 0 {
		m.logger.Info("A store answers again", watermill.LogFields{"away_for": away.String()})
	}
}

// Free implements seam.Limiter.
func (m *member) Free(messages int) {
	s := m.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.ended {
		return
	}
	m.inFlight -= messages
	s.inFlight -= messages
	s.deal()
}

// Down implements seam.Limiter.
func (m *member) Down() bool {
	m.scheduler.mu.Lock()
	defer m.scheduler.mu.Unlock()
	return m.candidate().State == Away
}

// end gives back everything the member has. Its Subscriber is closed.
func (m *member) end() {
	s := m.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	m.ended = true
	if m.turn != nil { // its claim hangs forever
		s.free(m, m.turn)
	}
	for _, timer := range []*time.Timer{m.retry, m.hung} {
		if timer != nil {
			timer.Stop()
		}
	}
	s.inFlight -= m.inFlight
	m.inFlight = 0
	s.deal()
}
