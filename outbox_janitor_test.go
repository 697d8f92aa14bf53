package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMostRoundsOfAWalkBeginWhereTheLastEnded(t *testing.T) {
	var w walk
	start := time.Now()
	round := func(after, took time.Duration, end int64) purgeArg {
		arg := purgeArg{OlderThanMS: 1000}
		w.begin(&arg, start.Add(after))
		begun := arg
		arg.After = end
		w.ended(&arg, start.Add(after), start.Add(after+took))
		return begun
	}
	require.Equal(t, purgeArg{OlderThanMS: 1000}, round(0, time.Second, 5000), "the first begins at the beginning")
	require.Equal(t, purgeArg{OlderThanMS: 1000, After: 5000, WithinMS: 1000 + 60_000 + 60_000}, round(time.Minute, 0, 6000))
	require.Equal(t, purgeArg{OlderThanMS: 1000, After: 6000, WithinMS: 1000 + 39_000 + 60_000}, round(99*time.Second, 0, 7000))
	require.Equal(t, purgeArg{OlderThanMS: 1000}, round(100*time.Second, time.Second, 7000), "a hundredth of the time is for rounds from the beginning")
}
