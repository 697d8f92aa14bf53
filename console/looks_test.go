package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/admin"
)

func visitOf(t *testing.T, c *Console) *visit {
	t.Helper()
	return &visit{Console: c, w: httptest.NewRecorder(), r: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), place: c.places.all()[0], begun: time.Now()}
}

// What takes long is asked once, however many pages ask, and shows how far it has come.
func TestALookIsSharedAndTellsItsProgress(t *testing.T) {
	v := visitOf(t, newConsole(t, Config{Authorize: allow}))
	goOn, times := make(chan struct{}), 0
	question := func(_ context.Context, tell func(int)) (int, error) {
		times++
		tell(7)
		<-goOn
		return 42, nil
	}
	for range 3 {
		value, state := ask(v, "key", question)
		require.True(t, state.Running)
		require.Equal(t, 7, value)
	}
	close(goOn)
	answered := func() bool {
		value, state := ask(v, "key", question)
		return !state.Running && value == 42
	}
	require.Eventually(t, answered, time.Minute, time.Millisecond)
	require.Equal(t, 1, times)
	v.looks.forget(v.place)
	require.Eventually(t, answered, time.Minute, time.Millisecond)
	require.Equal(t, 2, times, "after a change it is asked again")
}

// Steps of all looks into a store take turns, and the store has a rest of twice as long after each.
func TestLooksLeaveTheStoreAloneBetweenSteps(t *testing.T) {
	store := newTurns()
	const step = 5 * time.Millisecond
	var at []time.Time
	var looks sync.WaitGroup
	for range 3 {
		looks.Go(func() {
			ctx := context.WithValue(t.Context(), turnsKey{}, store)
			store.take(ctx)
			defer store.giveBack()
			for i := range 3 {
				if i > 0 {
					nextStep(ctx)
				}
				at = append(at, time.Now())
				for time.Since(at[len(at)-1]) < step {
					runtime.Gosched()
				}
			}
		})
	}
	looks.Wait()
	require.Len(t, at, 9)
	for i := range at[1:] {
		require.GreaterOrEqual(t, at[i+1].Sub(at[i]), 3*step)
	}
}

func TestALookEndsWhenNobodyAsksForIt(t *testing.T) {
	v := visitOf(t, newConsole(t, Config{Authorize: allow}))
	ended := make(chan error, 1)
	ask(v, "key", func(ctx context.Context, _ func(int)) (int, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, ctx.Err()
	})
	v.looks.sweep(time.Now())
	require.Empty(t, ended)
	v.looks.sweep(time.Now().Add(time.Hour))
	require.ErrorIs(t, <-ended, context.Canceled)
}

// An act goes on when its reader has left, and so many at once are enough.
func TestActsAreBounded(t *testing.T) {
	c := newConsole(t, Config{Authorize: allow})
	v := visitOf(t, c)
	goOn := make(chan struct{})
	start := func() (*operation, error) {
		o := &operation{Verb: "requeue", Counted: 4}
		return o, c.acts.start(c, v.place, o, func(_ context.Context, progress func(admin.Result)) (admin.Result, error) {
			progress(admin.Result{Matched: 2, Done: 2})
			<-goOn
			return admin.Result{Matched: 4, Done: 3}, nil
		})
	}
	first, err := start()
	require.NoError(t, err)
	for range actsAtOnce - 1 {
		_, err := start()
		require.NoError(t, err)
	}
	_, err = start()
	require.ErrorIs(t, err, errBusy)
	require.Eventually(t, func() bool { return first.state().Percent() == 50 }, time.Minute, time.Millisecond)
	close(goOn)
	require.Eventually(t, func() bool { return !first.state().Running() }, time.Minute, time.Millisecond)
	require.Equal(t, 3, first.state().Result.Done)
	require.NoError(t, c.Close())
	_, err = start()
	require.ErrorIs(t, err, errClosed)
}
