package flow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/flow"
)

const (
	shortest = 10 * time.Millisecond
	longest  = 80 * time.Millisecond
)

// took is how long f takes, by the bubble's clock.
func took(f func()) time.Duration {
	started := time.Now()
	f()
	return time.Since(started)
}

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	p := flow.Pauses{Shortest: shortest, Longest: 3 * shortest}
	require.Equal(t, []time.Duration{shortest, 2 * shortest, 3 * shortest, 3 * shortest}, []time.Duration{p.Next(), p.Next(), p.Next(), p.Next()})
	p.Reset()
	require.Equal(t, shortest, p.Next())
	var none flow.Pauses
	require.Zero(t, none.Next())
}

func TestAPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, shortest, took(func() { require.NoError(t, flow.Pause(t.Context(), shortest)) }))
		ctx, cancel := context.WithTimeout(t.Context(), shortest)
		defer cancel()
		require.Equal(t, shortest, took(func() { require.ErrorIs(t, flow.Pause(ctx, time.Hour), context.DeadlineExceeded) }))
	})
}

func TestANoteIsLeftOnce(t *testing.T) {
	note := flow.NewNote()
	flow.Notify(note)
	flow.Notify(note)
	require.Len(t, note, 1)
	closed := make(chan struct{})
	require.False(t, flow.IsClosed(closed))
	close(closed)
	require.True(t, flow.IsClosed(closed))
}

func TestAPacerPausesLongerWhileNothingIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := flow.NewPacer(shortest, longest)
		idle := func() time.Duration { return took(func() { p.Idle(nil, nil) }) }
		require.Equal(t, []time.Duration{shortest, 2 * shortest, 4 * shortest, longest, longest},
			[]time.Duration{idle(), idle(), idle(), idle(), idle()})
		p.Busy()
		require.Equal(t, shortest, idle())
		idle()

		p.Wake()
		require.Zero(t, idle(), "a wake-up ends the next pause")
		require.Equal(t, shortest, idle(), "and the one after it is short again")
	})
}

func TestAPacerPollsOftenAfterSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := flow.NewPacer(shortest, longest)
		p.Soon()
		p.Idle(nil, nil) // ended by Soon
		var pauses []time.Duration
		for range 12 {
			pauses = append(pauses, took(func() { p.Idle(nil, nil) }))
		}
		for i := range 10 {
			require.Equal(t, shortest, pauses[i])
		}
		require.Equal(t, 4*shortest, pauses[11], "the window is over")
	})
}

func TestWhatEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := flow.NewPacer(shortest, longest)
		stop, freed := make(chan struct{}), flow.NewNote()
		flow.Notify(freed)
		require.False(t, p.Pause(time.Hour, freed, stop))
		flow.Notify(freed)
		require.Zero(t, took(func() { p.Full(freed, stop) }))
		p.Wake()
		require.Zero(t, took(func() { p.Full(freed, stop) }))
		time.AfterFunc(shortest, func() { close(stop) })
		require.Equal(t, shortest, took(func() { p.Full(freed, stop) }))
		require.False(t, p.Pause(time.Hour, freed, stop))
		require.True(t, p.Pause(shortest, freed, nil))
	})
}
