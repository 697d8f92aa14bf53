package quiet

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/assert"
)

const trouble = "Cannot claim messages"

var errAway = errors.New("connection refused")

// A book keeps the lines of a log; its clock stands still unless it is moved.
type book struct {
	watermill.NopLogger
	mu    sync.Mutex
	lines []string
	clock time.Time
}

func (b *book) Error(msg string, err error, fields watermill.LogFields) {
	b.write("ERROR", msg, err, fields)
}
func (b *book) Info(msg string, fields watermill.LogFields) { b.write("INFO", msg, nil, fields) }

func (b *book) write(level, msg string, err error, fields watermill.LogFields) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprint(level, " ", msg, " ", err, " ", fields["times"], " ", fields["lasting"]))
}

func newTroubles() (*Troubles, *book) {
	b := &book{clock: time.Unix(1_800_000_000, 0)}
	t := New(b)
	t.now = func() time.Time { return b.clock }
	return t, b
}

func TestTroubles_FirstLineThenACountThenTheEnd(t *testing.T) {
	troubles, b := newTroubles()
	for range 90 * 10 { // ten times a second for a minute and a half
		troubles.Error(trouble, errAway, nil)
		b.clock = b.clock.Add(100 * time.Millisecond)
	}
	troubles.Over(trouble)
	troubles.Over(trouble)
	assert.Equal(t, []string{
		"ERROR Cannot claim messages connection refused <nil> <nil>",
		"ERROR Cannot claim messages; it goes on connection refused 601 1m0s",
		"INFO Cannot claim messages; it is over <nil> 900 1m30s",
	}, b.lines)
}

func TestTroubles_TheFirstAfterItRecoveredIsWhole(t *testing.T) {
	troubles, b := newTroubles()
	troubles.Error(trouble, errAway, nil)
	troubles.Over(trouble)
	troubles.Error(trouble, errAway, nil)
	assert.Equal(t, []string{
		"ERROR Cannot claim messages connection refused <nil> <nil>",
		"INFO Cannot claim messages; it is over <nil> 1 0s",
		"ERROR Cannot claim messages connection refused <nil> <nil>",
	}, b.lines)
}

func TestTroubles_KindsDoNotHideEachOther(t *testing.T) {
	troubles, b := newTroubles()
	troubles.Error(trouble, errAway, nil)
	troubles.Error("Cannot settle messages", errAway, nil)
	troubles.Over(trouble)
	assert.Len(t, b.lines, 3)
}

func TestTroubles_OneThatComesAndGoesDoesNotFlood(t *testing.T) {
	troubles, b := newTroubles()
	for range 600 { // for a minute
		troubles.Error(trouble, errAway, nil)
		troubles.Over(trouble)
		b.clock = b.clock.Add(100 * time.Millisecond)
	}
	assert.Len(t, b.lines, linesPerMinute)
	troubles.Error(trouble, errAway, nil)
	assert.Len(t, b.lines, linesPerMinute+1, "the next minute it is heard again")
}

func TestTroubles_ManyAtOnce(t *testing.T) {
	troubles, b := newTroubles()
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 1000 {
				troubles.Error(trouble, errAway, nil)
			}
		})
	}
	workers.Wait()
	troubles.Over(trouble)
	assert.Equal(t, []string{
		"ERROR Cannot claim messages connection refused <nil> <nil>",
		"INFO Cannot claim messages; it is over <nil> 8000 0s",
	}, b.lines)
}
