package streams_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the reader of a story counts. A line is worker, event, stream, message.
func TestStreamReader(t *testing.T) {
	const b, done, fails, givesUp, stops, skips, killed = " 0 ", " 1 ", " 2 ", " 3 ", " 4 ", " 5 ", " 6 "
	type counts struct{ together, inversions, again, lapsed, farthest, interrupted int }
	for name, c := range map[string]struct {
		skips bool
		story []string
		want  counts
	}{
		"in order, with a failure between":      {false, []string{"1" + b + "7 0", "1" + fails + "7 0", "2" + b + "7 0", "2" + done + "7 0", "1" + b + "7 1", "1" + done + "7 1"}, counts{}},
		"streams beside each other":             {false, []string{"1" + b + "7 0", "1" + b + "8 0", "1" + done + "8 0", "1" + done + "7 0"}, counts{}},
		"two handlers":                          {false, []string{"1" + b + "7 0", "2" + b + "7 0", "2" + done + "7 0"}, counts{together: 1}},
		"an end that comes too late":            {false, []string{"1" + b + "7 0", "2" + b + "7 0", "2" + done + "7 0", "1" + done + "7 0"}, counts{together: 2}},
		"a message is left out":                 {false, []string{"1" + b + "7 0", "1" + done + "7 0", "1" + b + "7 2", "1" + done + "7 2"}, counts{inversions: 1}},
		"what follows one that fails":           {false, []string{"1" + b + "7 0", "1" + fails + "7 0", "1" + b + "7 1", "1" + done + "7 1"}, counts{inversions: 1}},
		"what follows one that blocks":          {false, []string{"1" + b + "7 0", "1" + givesUp + "7 0", "1" + b + "7 1", "1" + done + "7 1"}, counts{inversions: 1}},
		"what follows one that is skipped":      {false, []string{"1" + b + "7 0", "1" + givesUp + "7 0", "0" + skips + "7 0", "1" + b + "7 1", "1" + done + "7 1"}, counts{}},
		"workers skip":                          {true, []string{"1" + b + "7 0", "1" + givesUp + "7 0", "1" + b + "7 1", "1" + done + "7 1"}, counts{}},
		"a handler whose context ends":          {false, []string{"1" + b + "7 0", "1" + stops + "7 0", "2" + b + "7 0", "2" + done + "7 0"}, counts{}},
		"a killed handler":                      {false, []string{"1" + b + "7 0", "1" + killed + "0 0", "2" + b + "7 0", "2" + done + "7 0"}, counts{interrupted: 1}},
		"another before the kill":               {false, []string{"1" + b + "7 0", "2" + b + "7 0", "1" + killed + "0 0", "2" + done + "7 0"}, counts{together: 1}},
		"back after a kill":                     {false, []string{"1" + b + "7 0", "1" + done + "7 0", "1" + b + "7 1", "1" + killed + "0 0", "2" + b + "7 0", "2" + done + "7 0", "2" + b + "7 1"}, counts{again: 1, farthest: 1, interrupted: 1}},
		"back after a kill, but not in order":   {false, []string{"1" + b + "7 0", "1" + done + "7 0", "1" + b + "7 1", "1" + done + "7 1", "1" + killed + "0 0", "2" + b + "7 0", "2" + fails + "7 0", "2" + b + "7 1"}, counts{inversions: 1, again: 2, farthest: 2}},
		"back though another has begun a later": {false, []string{"1" + b + "7 0", "1" + done + "7 0", "1" + killed + "0 0", "2" + b + "7 1", "2" + fails + "7 1", "2" + b + "7 0"}, counts{inversions: 1, again: 1, farthest: 1}},
		"back without a kill":                   {false, []string{"1" + b + "7 0", "1" + done + "7 0", "2" + b + "7 0"}, counts{lapsed: 1, farthest: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newStreamReader(strings.NewReader(strings.Join(c.story, "\n")+"\n"), c.skips)
			require.NoError(t, r.read())
			require.Equal(t, c.want, counts{r.together, r.inversions, r.again, r.lapsed, r.farthest, r.interrupted})
			require.Len(t, r.problems, c.want.together+c.want.inversions)
		})
	}
}
