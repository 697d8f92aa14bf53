// Package quiet logs recurring errors as one line for each kind of trouble, and then a count.
package quiet

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// minute is how often a persisting trouble is mentioned again, and linesPerMinute the most lines for one kind, however often
// it comes and goes.
const (
	minute         = time.Minute
	linesPerMinute = 10
)

// Troubles keeps a log from being flooded. The first trouble of a kind is logged in full, as an error; later ones are
// counted, and the count is logged at most once a minute, and when the trouble is over. The message is the kind: its text
// must be constant. The zero value is not usable; a Troubles is safe for concurrent use.
type Troubles struct {
	logger watermill.LoggerAdapter
	now    func() time.Time
	open   atomic.Int64 // current kinds, so that Over costs nothing while all is well

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	open   bool
	times  int       // since it began
	since  time.Time // when it began
	said   time.Time // when its last line was written
	lines  int       // written since period
	period time.Time // when lines was last 0
}

// New returns a Troubles that writes to logger.
func New(logger watermill.LoggerAdapter) *Troubles {
	return &Troubles{logger: logger, now: time.Now, kinds: map[string]*kind{}}
}

// Error reports a trouble.
func (t *Troubles) Error(msg string, err error, fields watermill.LogFields) {
	t.mu.Lock()
	now := t.now()
	k := t.kinds[msg]
	if k == nil {
		k = &kind{}
		t.kinds[msg] = k
	}
	first := !k.open
	if first {
		k.open, k.times, k.since = true, 0, now
		t.open.Add(1)
	}
	k.times++
	speak := (first || now.Sub(k.said) >= minute) && k.mayWrite(now)
	times, lasting := k.times, now.Sub(k.since)
	t.mu.Unlock()
	switch {
	case speak && times == 1:
		t.logger.Error(msg, err, fields)
	case speak:
		t.logger.Error(msg+"; it goes on", err, fields.Add(count(times, lasting)))
	}
}

// Over reports success: if msg was a current trouble, it has ended.
func (t *Troubles) Over(msg string) {
	if t.open.Load() == 0 {
		return
	}
	t.mu.Lock()
	k := t.kinds[msg]
	if k == nil || !k.open {
		t.mu.Unlock()
		return
	}
	k.open = false
	t.open.Add(-1)
	now := t.now()
	speak := k.mayWrite(now)
	times, lasting := k.times, now.Sub(k.since)
	t.mu.Unlock()
	if speak {
		t.logger.Info(msg+"; it is over", count(times, lasting))
	}
}

// mayWrite counts a line, unless there were too many recently.
func (k *kind) mayWrite(now time.Time) bool {
	if now.Sub(k.period) >= minute {
		k.period, k.lines = now, 0
	}
	if k.lines == linesPerMinute {
		return false
	}
	k.lines++
	k.said = now
	return true
}

func count(times int, lasting time.Duration) watermill.LogFields {
	return watermill.LogFields{"times": times, "lasting": lasting.Round(time.Millisecond).String()}
}
