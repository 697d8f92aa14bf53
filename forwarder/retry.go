package forwarder

import (
	"context"
	"time"
)

type retryKey struct{}

// IsRetry reports of a message's context, in Publish, whether the message was Unavailable before and is tried again, beside
// the others. A publisher that knows a part of its broker to be away need try nothing else there, and can answer
// outbox.Unavailable at once.
func IsRetry(ctx context.Context) bool { return ctx.Value(retryKey{}) != nil }

// retry publishes what waits, after longer and longer pauses while nothing of it gets through.
func (w *worker) retry() {
	for pause := w.config.RetryMin; w.await(pause); {
		if w.again() {
			pause = w.config.RetryMin
		} else {
			pause = min(2*pause, w.config.RetryMax)
		}
	}
}

// await waits until something waits, and then for the pause, or until another worker finds the broker back. It answers
// false at Close.
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

// again tries once all that waits. A stream, or a destination, that gets nowhere is left for the next time. It answers false
// if something was tried and nothing got through.
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
			case lost(it):
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

// nextRun takes up to a batch for the destination of the first that may be tried.
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
