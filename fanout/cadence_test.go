package fanout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// A slice is due at the end of its interval, later by no more than the jitter, and always at the same time.
func TestSlicesAreDueInOrder(t *testing.T) {
	c := Cadence{Every: time.Minute, Jitter: time.Minute}
	delays := map[time.Duration]bool{}
	var last time.Time
	for slice := range int64(1000) {
		end := time.Unix(60*(slice+1), 0)
		due := c.due("policy", slice)
		require.Equal(t, due, c.due("policy", slice))
		require.False(t, due.Before(end) || due.After(end.Add(time.Minute)), "%v is due at %v", end, due)
		require.False(t, due.Before(last))
		require.Equal(t, slice, c.slice(end.Add(-time.Millisecond)))
		require.Equal(t, slice+1, c.slice(end))
		delays[due.Sub(end)] = true
		last = due
	}
	require.Greater(t, len(delays), 990, "they are spread")
	require.NotEqual(t, c.due("policy", 7), c.due("another", 7))
	c.Jitter = 0
	require.Equal(t, time.Unix(60*8, 0), c.due("policy", 7))
}

// A slice that is not due holds up what comes after it in the log, whatever the clock said there.
func TestCutKeepsTheOrderOfTheLog(t *testing.T) {
	p := Policy{Name: "p", Cadence: Cadence{Every: time.Minute}}
	now := time.Unix(150, 0)
	at := func(second int64) outbox.LogMessage {
		logged := time.Unix(second, 0)
		return outbox.LogMessage{LoggedAt: logged, Age: now.Sub(logged)}
	}
	due, wait := p.cut([]outbox.LogMessage{at(10), at(119), at(121), at(110)})
	require.Len(t, due, 2)
	require.Equal(t, 30*time.Second, wait)
	due, wait = p.cut([]outbox.LogMessage{at(119), at(10)})
	require.Len(t, due, 2)
	require.Zero(t, wait)
	due, _ = (&Policy{}).cut([]outbox.LogMessage{at(149)})
	require.Len(t, due, 1)
}
