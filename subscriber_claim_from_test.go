package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAClaimBeginsWhereTheLastOneEnded(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var from claimFrom
	require.Nil(t, from.next(now), "the first begins at the beginning")
	message := func(topic string, created, due time.Time, retries int) *Claimed {
		return &Claimed{Message: Message{Topic: topic, DueAt: due}, CreatedAt: created, RetryCount: retries}
	}
	from.claimed(nil, []*Claimed{
		message("a", now.Add(-time.Minute), time.Time{}, 0),
		message("a", now.Add(-time.Hour), time.Time{}, 0),
		message("b", now, now.Add(-time.Minute), 0),
		message("c", now, time.Time{}, 1),
	})
	want := map[string]time.Time{"a": now.Add(-time.Minute - claimOverlap), "b": now.Add(-time.Minute - claimOverlap)}
	require.Equal(t, want, from.next(now), "the time for which it was planned counts, and no retry")
	require.Nil(t, from.next(now.Add(fullClaimInterval)), "now and then at the beginning")
	require.Equal(t, want, from.next(now.Add(fullClaimInterval)))

	from.claimed(nil, []*Claimed{message("a", now.Add(-time.Hour), time.Time{}, 1)})
	require.Equal(t, want, from.next(now), "what was tried before leaves it as it is")

	earlier := message("a", now.Add(-2*time.Hour), time.Time{}, 0)
	from.claimed(want, []*Claimed{earlier})
	require.Equal(t, want, from.next(now))
	from.claimed(nil, []*Claimed{earlier})
	require.Equal(t, want, from.next(now), "one that was released")
	require.Nil(t, from.next(now.Add(relearnInterval)))
	from.claimed(nil, []*Claimed{earlier})
	want["a"] = earlier.CreatedAt.Add(-claimOverlap)
	require.Equal(t, want, from.next(now.Add(relearnInterval)), "a clock that was set back")
}
