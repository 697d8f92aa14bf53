package flow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBytesOfAClaim(t *testing.T) {
	limits := Limits{Bytes: 400}
	for _, c := range []struct {
		taken         int64
		topics        int
		more          bool
		bytes, beside int64
		why           string
	}{
		{0, 1, false, 400, 100, "all"},
		{0, 2, false, 300, 100, "a quarter is kept for the other topic"},
		{0, 1, true, 300, 100, "a quarter is left to a second claim"},
		{0, 2, true, 200, 100, "both"},
		{100, 2, true, 100, 100, "a quarter is taken"},
		{101, 2, true, 199, 100, "too much is taken to leave some to a second claim"},
		{200, 2, true, 100, 100, "half is taken"},
		{201, 2, true, 199, 0, "heavy: nothing is kept"},
		{300, 1, true, 100, 100, "a quarter is free"},
		{301, 1, true, 99, 0, "less than a quarter is free"},
		{400, 1, false, 0, 0, "nothing is free"},
	} {
		require.Equal(t, c.bytes, limits.budget(c.taken, c.topics, c.more), c.why)
		require.Equal(t, c.beside, limits.budgetBeside(c.taken, c.topics), c.why)
		require.Equal(t, c.taken > 200, limits.heavy(c.taken), c.why)
	}
}
