package testforwarder

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrder(t *testing.T) {
	type arrival struct {
		n    int
		call string
	}
	for name, c := range map[string]struct {
		arrivals                         []arrival
		inversions, disorder, duplicates int
	}{
		"in order":                        {[]arrival{{0, "a"}, {1, "a"}, {2, "b"}}, 0, 0, 0},
		"a run again":                     {[]arrival{{0, "a"}, {1, "a"}, {2, "a"}, {1, "b"}, {2, "b"}, {3, "b"}}, 0, 0, 2},
		"a message is left out":           {[]arrival{{0, "a"}, {2, "a"}}, 1, 0, 0},
		"a later one is first":            {[]arrival{{0, "a"}, {2, "a"}, {1, "a"}}, 1, 1, 1},
		"a run again, but not in order":   {[]arrival{{0, "a"}, {1, "a"}, {2, "a"}, {2, "b"}, {1, "b"}}, 0, 1, 2},
		"one call sends a message twice":  {[]arrival{{0, "a"}, {0, "a"}}, 0, 1, 1},
		"what was cut off comes with new": {[]arrival{{0, "b"}, {0, "a"}, {1, "b"}, {1, "a"}, {2, "b"}}, 0, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var o Order
			for _, a := range c.arrivals {
				o.Arrive("of another", a.n, a.call)
				o.Arrive("s", a.n, a.call)
			}
			require.Equal(t, []int{2 * c.inversions, 2 * c.disorder, 2 * c.duplicates}, []int{o.Inversions, o.Disorder, o.Duplicates})
			require.Len(t, o.Problems, 2*(c.inversions+c.disorder))
		})
	}
}
