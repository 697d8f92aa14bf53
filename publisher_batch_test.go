package outbox

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/flow"
)

// Flush waits for the calls that wait, but not for those that leave.
func TestTrap_FlushDoesNotWaitForACallThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{places: make(chan struct{}, 1), closing: make(chan struct{}), changed: flow.NewNote(), start: func() {}}
		ctx, cancel := context.WithCancel(t.Context())
		left, flushed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := b.wait(ctx, &batchedCall{pendingCall: &pendingCall{}, done: make(chan struct{})})
			left <- err
		}()
		synctest.Wait()
		go func() { flushed <- b.flush(t.Context()) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		synctest.Wait()
		select {
		case err := <-flushed:
			require.NoError(t, err)
		default:
			t.Error("Flush still waits")
		}
		require.False(t, b.hurry, "nobody is left to hurry for")
	})
}

// A batch that takes long gets a second writer, but a call of its stream does not overtake it.
func TestTrap_ASlowBatchIsNotOvertakenByItsStream(t *testing.T) {
	for _, ofStream := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var writers atomic.Int32
			b := &batches{places: make(chan struct{}, 10), messages: 10, bytes: 1000, writers: severalWriters, start: func() { writers.Add(1) }}
			add := func(streamed bool) {
				require.True(t, b.add(&batchedCall{pendingCall: &pendingCall{}, done: make(chan struct{}), streamed: streamed}))
			}
			for range 3 {
				add(true)
			}
			batch, _ := b.take()
			require.Len(t, batch.calls, 3)
			add(ofStream)
			require.Equal(t, int32(1), writers.Load(), "one call is worth no commit, yet")
			<-time.After(slowWrite)
			synctest.Wait()
			if !ofStream {
				require.Equal(t, int32(2), writers.Load())
				return
			}
			require.Equal(t, int32(1), writers.Load())
			b.written(batch)
			batch, _ = b.take()
			require.Len(t, batch.calls, 1)
			b.written(batch)
		})
	}
}
