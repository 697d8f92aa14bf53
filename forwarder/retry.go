package forwarder

import (
	"context"
	"time"

	"github.com/incursa/watermill-outbox/internal/flow"
)

type retryKey struct{}

// IsRetry reports, from a message's context in Publish, whether the message was Unavailable before and is being retried
// apart from the others. A publisher that knows that a part of its broker is away can try only these messages there, and
// return outbox.Unavailable for all others at once.
func IsRetry(ctx context.Context) bool { return ctx.Value(retryKey{}) != nil }

// retry publishes waiting messages, with growing pauses while none of them gets through.
func (w *worker) retry() {
	pauses := flow.Pauses{Shortest: w.config.RetryMin, Longest: w.config.RetryMax}
	for w.await(pauses.Next()) {
		if w.again() {
			pauses.Reset()
		}
	}
}

// await blocks until a message waits, and then for the pause or until another worker finds the broker back. It returns false
// on Close.
func (w *worker) await(pause time.Duration) bool {
	for w.waiting.isEmpty() {
		select {
		case <-w.waiting.added:
		case <-w.closing:
			return false
		}
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.breaker.closes():
	case <-w.closing:
		return false
	}
	return !w.isClosing()
}

// again tries every waiting message once. A stream or destination that makes no progress is left for the next time. It
// returns false if something was tried and nothing got through.
func (w *worker) again() (through bool) {
	var failure error
	tried := 0
	skipped, nowhere := map[lane]bool{}, map[string]bool{}
	todo := w.waiting.all()
	for len(todo) > 0 && !w.isClosing() {
		var run, rest []*item
		run, rest = w.nextRun(todo, skipped, nowhere)
		todo = rest
		if len(run) == 0 {
			continue
		}
		alive := make([]*item, 0, len(run))
		for _, it := range run {
			switch {
			case w.goesBack(it):
			case w.waiting.isStopped(it):
				w.park(it, time.Now())
			default:
				it.outgoing.SetContext(context.WithValue(it.received.Context(), retryKey{}, true))
				alive = append(alive, it)
			}
		}
		if len(alive) == 0 {
			w.waiting.tried(run, nil, false)
			continue
		}
		tried++
		failed, some, cause := w.try(alive)
		w.waiting.tried(run, failed, some)
		for _, it := range failed {
			skipped[it.lane] = true
		}
		if through = through || some; cause != nil {
			failure = cause
			nowhere[run[0].lane.destination] = !some && failed[0].blocks == destination
		}
	}
	if failure != nil && !through && !w.isClosing() {
		w.breaker.failed(failure)
	}
	return through || tried == 0
}

// nextRun takes up to a batch for the destination of the first message that may be tried.
func (w *worker) nextRun(todo []*item, skipped map[lane]bool, nowhere map[string]bool) (run, rest []*item) {
	var bytes int64
	for _, it := range todo {
		switch {
		case skipped[it.lane] || nowhere[it.lane.destination]:
		case len(run) > 0 && (it.lane.destination != run[0].lane.destination || len(run) >= w.config.BatchSize || bytes >= w.config.BatchBytes):
			rest = append(rest, it)
		default:
			run, bytes = append(run, it), bytes+it.size
		}
	}
	return run, rest
}
