package stores_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testserver"
)

// latenciesOf are those of what was published during a phase.
type latenciesOf struct {
	phase string
	times []time.Duration // sorted
}

func (m *manyRun) measure(phase string, run func()) latenciesOf {
	from := time.Now()
	run()
	to := time.Now()
	m.Eventually(func() bool { return m.missing(to) == 0 }, 2*suite.Patience, suite.Tick, "messages are never handled")
	m.mu.Lock()
	defer m.mu.Unlock()
	l := latenciesOf{phase: phase}
	for id, at := range m.published {
		if at.After(from) && at.Before(to) {
			l.times = append(l.times, max(0, m.handled[id].Sub(at)))
		}
	}
	m.NotEmpty(l.times, phase)
	slices.Sort(l.times)
	return l
}

// missing is how many messages were published before a moment and have not come.
func (m *manyRun) missing(before time.Time) (messages int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, at := range m.published {
		if _, handled := m.handled[id]; !handled && at.Before(before) {
			messages++
		}
	}
	return messages
}

func (l latenciesOf) percentile(p int) time.Duration { return l.times[(len(l.times)-1)*p/100] }

func (l latenciesOf) String() string {
	return fmt.Sprintf("latency of %d messages %s: median %v, p95 %v, most %v", len(l.times), l.phase, l.percentile(50).Round(time.Millisecond),
		l.percentile(95).Round(time.Millisecond), l.percentile(100).Round(time.Millisecond))
}

// check asks the databases: nothing is lost, and nothing comes twice.
func (m *manyRun) check() {
	all := m.busy.allDone()
	m.Equal(m.waiting, all)
	for _, x := range m.healthy {
		all += x.allDone()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Equal(m.waiting+len(m.published), all)
	m.Len(m.handled, len(m.published))
	m.Zero(m.repeated, "messages that came again")
	m.Zero(m.left.Load())
}

func (m *manyRun) age() time.Duration { return time.Since(m.started) }

// allowed is how many attempts the pauses of a breaker allow up to now: they double from 100 ms up to 30 s.
func (m *manyRun) allowed() (attempts int64) {
	pause := 100 * time.Millisecond
	for left := m.age(); left >= 0; attempts++ {
		left -= pause
		pause = min(2*pause, 30*time.Second)
	}
	return attempts
}

// bound is the latency that is allowed beside the backlog: a second. In the normal suite the machine may be too busy for that,
// which the latency without a backlog tells.
func (m *manyRun) bound(alone latenciesOf) time.Duration {
	if m.shared {
		return max(time.Second, 3*alone.percentile(95))
	}
	return time.Second
}

// closedPort is a PostgreSQL whose server is stopped.
func closedPort(t *testing.T) *testdb.DB {
	_, address := testserver.FreePort(t)
	dsn := "postgres://nobody@" + address + "/offline?sslmode=disable"
	pool, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() }) // which has no connection
	return &testdb.DB{DB: pool, DSN: dsn, DriverName: "pgx"}
}
