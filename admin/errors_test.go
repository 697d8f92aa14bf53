package admin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Traces below the first line differ where the error is the same.
func TestErrorsAreGroupedByTheirFirstLine(t *testing.T) {
	var counts ErrorCounts
	groups := map[[2]string]*ErrorGroup{}
	for i := range 3 {
		counts.add(groups, Message{Topic: "orders", LastError: fmt.Sprintf("broken\nline %d", i)})
	}
	counts.add(groups, Message{Topic: "bills", LastError: "broken"})
	require.Len(t, groups, 2)
	require.Equal(t, 3, groups[[2]string{"orders", "broken"}].Count)
	require.Equal(t, "broken\nline 2", groups[[2]string{"orders", "broken"}].Example.LastError)
}

func TestMarksAreText(t *testing.T) {
	for _, m := range []Mark{{}, {1, 2, 3}, {-5, 9, 0}} {
		again, err := ParseMark(m.String())
		require.NoError(t, err)
		require.Equal(t, m, again)
	}
	for _, bad := range []string{"x", "1-2", "1-2-3-4", "1-2-3 ", " 1-2-3", "1--2-3-"} {
		_, err := ParseMark(bad)
		require.Error(t, err, bad)
	}
}
