package eventstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A waiter pauses between looks, longer each time, until it is woken.
type waiter struct {
	woken chan struct{}
	stop  func()
	pause time.Duration
}

func (s *Store) newWaiter() *waiter {
	w := &waiter{woken: make(chan struct{}, 1), pause: pauseMin}
	w.stop = outbox.OnWake(s.config.Store, func([]string) {
		select {
		case w.woken <- struct{}{}:
		default:
		}
	})
	return w
}

func (w *waiter) busy() { w.pause = pauseMin }

// wait returns an error if ctx ends first.
func (w *waiter) wait(ctx context.Context) error {
	timer := time.NewTimer(w.pause)
	defer timer.Stop()
	w.pause = min(2*w.pause, pauseMax)
	select {
	case <-w.woken:
		w.busy()
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WaitFor waits until a consumer group, such as a Projection's Name, has passed a version of a stream, so that what was written
// can be read. A group of the whole log counts, and one of the event's topic. An event that is not committed yet is waited for.
// It returns the error of ctx if that ends first, with what it was waiting for: the event, its position in the log, which a
// Sequencer gives it, or the group.
func (s *Store) WaitFor(ctx context.Context, group, stream string, version int64) error {
	if err := validateStream(stream); err != nil {
		return err
	}
	if group == "" {
		return field.Bad("group", "is empty; name the consumer group")
	}
	if err := field.Key("group", group); err != nil {
		return err
	}
	if version < 1 {
		return field.Bad("version", "%d is not that of an event; versions begin with 1", version)
	}
	arg := struct {
		Group   string `json:"group"`
		Stream  string `json:"stream"`
		Version int64  `json:"version"`
	}{group, stream, version}
	waiter := s.newWaiter()
	defer waiter.stop()
	reason := "nothing is known yet"
	for {
		var position, reached int64
		err := s.inside.Run(ctx, s.db, "outbox_event_wait", arg, func(rows *sql.Rows) error { return rows.Scan(&position, &reached) })
		switch {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("look how far the group %q is: %w", group, err)
		case err == nil && position > 0 && reached >= position:
			return nil
		case err == nil:
			reason = missing(group, position, reached)
			waiter.pause = min(waiter.pause, waitMax)
			err = waiter.wait(ctx)
		}
		if err != nil {
			return fmt.Errorf("wait for the group %q to pass version %d of the stream %q: %s: %w", group, version, stream, reason, err)
		}
	}
}

// missing says what WaitFor waits for. position is 0 without one, and -1 without the event; reached is -1 without the group.
func missing(group string, position, reached int64) string {
	switch {
	case position < 0:
		return "the stream has no such version that is committed"
	case position == 0:
		return "the event has no position in the log; run an outbox.Sequencer, or look for its errors"
	case reached < 0:
		return fmt.Sprintf("there is no group %q of the whole log or of the event's topic", group)
	default:
		return fmt.Sprintf("the event is at position %d of the log, and the group at %d", position, reached)
	}
}

// waitMax is shorter than pauseMax: somebody waits, and nothing wakes whoever waits for a group to move.
const waitMax = 50 * time.Millisecond
