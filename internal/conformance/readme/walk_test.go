package readme

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who follows a message, or a step of a join, through the code opens few files, and rarely comes back to one.
const (
	mostFiles    = 16
	mostRevisits = 6
)

func TestTheWalksAreShort(t *testing.T) {
	page := read(t, "docs/architecture.md")
	for _, title := range []string{"## One message, from Publish to Ack", "## One step of a join"} {
		_, section, found := strings.Cut(page, title+"\n")
		require.True(t, found, title)
		section, _, _ = strings.Cut(section, "\n## ")
		walk := walkOf(parse(section).tableUnder("Step"))
		require.Greater(t, len(walk), 10, title)
		files, revisits := map[string]bool{}, 0
		for _, file := range walk {
			if files[file] {
				revisits++
			}
			files[file] = true
			require.FileExists(t, root+"/"+file)
		}
		t.Logf("%s: %d files, %d revisits", title, len(files), revisits)
		require.LessOrEqual(t, len(files), mostFiles, title)
		require.LessOrEqual(t, revisits, mostRevisits, title)
	}
}

// walkOf returns the files of a walk in order; to stay in one is no step.
func walkOf(rows [][]string) (walk []string) {
	for _, row := range rows {
		for _, file := range submatches(regexp.MustCompile("`([a-z_/]+\\.(?:go|sql))`"), row[1]) {
			if len(walk) == 0 || walk[len(walk)-1] != file {
				walk = append(walk, file)
			}
		}
	}
	return walk
}

func TestAWalkCountsWhoComesBack(t *testing.T) {
	rows := [][]string{{"a", "`a.go`"}, {"b", "`a.go`, then `b/c.sql`"}, {"c", "as above"}, {"d", "`a.go` again"}}
	require.Equal(t, []string{"a.go", "b/c.sql", "a.go"}, walkOf(rows))
}
