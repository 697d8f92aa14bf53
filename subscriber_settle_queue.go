package outbox

import (
	"slices"
	"sync"
	"time"

	"github.com/incursa/watermill-outbox/internal/flow"
)

// How long answers wait for a claim that takes them along, before they get their own call, by what can be said of claims.
const (
	noClaim       = 0
	claimSoon     = 2 * time.Millisecond // one comes as soon as there is room, and answers make room
	claimUnderWay = slowWrite            // one is under way, and the next one follows
	amidRun       = slowWrite            // in the middle of a run, nothing waits for its answers
)

// mostAlong is the most answers that a claim takes along: more are better settled beside it, at the same time.
const mostAlong = 250

// An answerQueue holds answers that are to be settled. It is safe for concurrent use.
type answerQueue struct {
	mu       sync.Mutex
	answers  []*answer
	since    time.Time     // when their wait began
	patience time.Duration // how long it may be: noClaim and the others
	closed   bool
	changed  chan struct{} // has room for one note

	single bool // only one batch at a time may be out, until done or putBack
	out    bool // it is, which happens only if single is set
}

func newAnswerQueue() *answerQueue { return &answerQueue{changed: flow.NewNote()} }

// newOrderedQueue is for the answers of streams. They are settled one batch after the other: if the process dies, no message
// is settled before its predecessor.
func newOrderedQueue() *answerQueue {
	return &answerQueue{single: true, patience: amidRun, changed: flow.NewNote()}
}

func (q *answerQueue) add(answers ...*answer) {
	if len(answers) == 0 {
		return
	}
	q.mu.Lock()
	if len(q.answers) == 0 {
		q.since = time.Now()
	}
	q.answers = append(q.answers, answers...)
	q.mu.Unlock()
	flow.Notify(q.changed)
}

// putBack puts back answers that could not be settled: they do not wait for another claim.
func (q *answerQueue) putBack(answers []*answer) {
	if len(answers) == 0 {
		return
	}
	q.mu.Lock()
	q.since = time.Time{}
	q.answers = slices.Concat(answers, q.answers)
	q.out = false
	q.mu.Unlock()
	flow.Notify(q.changed)
}

// takeAlong takes all that a claim may take along.
func (q *answerQueue) takeAlong() []*answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.answers) > mostAlong {
		return nil
	}
	return q.batch()
}

// take takes up to a batch, at once.
func (q *answerQueue) take() []*answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.batch()
}

// batch is take for a caller that holds the lock.
func (q *answerQueue) batch() []*answer {
	n := min(len(q.answers), maxBatch)
	if n == 0 || q.out {
		return nil
	}
	if q.single {
		q.out, q.patience = true, amidRun
	}
	batch := q.answers[:n:n]
	if q.answers = q.answers[n:]; len(q.answers) == 0 {
		q.answers = nil
	}
	q.since = time.Now()
	return batch
}

// done says that the batch that was taken is settled, or will not be.
func (q *answerQueue) done() {
	q.mu.Lock()
	q.out = false
	q.mu.Unlock()
	flow.Notify(q.changed)
}

// all takes everything; more is false at the end.
func (q *answerQueue) all() (answers []*answer, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	answers = q.answers
	q.answers = nil
	return answers, !q.closed
}

// expect sets how long answers may wait for a claim from now on.
func (q *answerQueue) expect(patience time.Duration) {
	q.mu.Lock()
	changed := q.patience != patience
	q.patience = patience
	q.mu.Unlock()
	if changed {
		flow.Notify(q.changed)
	}
}

// soon says that the answers in the queue are waited for.
func (q *answerQueue) soon() {
	q.mu.Lock()
	if q.patience != claimSoon {
		q.patience = claimSoon
		q.since = time.Now()
	}
	q.mu.Unlock()
	flow.Notify(q.changed)
}

// close says that nothing more is added.
func (q *answerQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	flow.Notify(q.changed)
}

// due returns in how long the answers no longer wait for a claim, and whether there are any; more is false at the end.
func (q *answerQueue) due() (in time.Duration, some, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.out {
		return 0, false, true
	}
	if len(q.answers) == 0 {
		return 0, false, !q.closed
	}
	if q.closed || len(q.answers) > mostAlong {
		return 0, true, true
	}
	return q.patience - time.Since(q.since), true, true
}

// next waits for a batch that no claim has taken along. It is empty at the end.
func (q *answerQueue) next() []*answer {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		in, some, more := q.due()
		var late <-chan time.Time
		switch {
		case !more:
			return nil
		case some && in <= 0:
			if batch := q.take(); len(batch) > 0 {
				return batch
			}
			continue // a claim was faster
		case some:
			timer.Reset(in)
			late = timer.C
		}
		select {
		case <-q.changed:
		case <-late:
		}
	}
}
