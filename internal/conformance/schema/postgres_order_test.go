package schema_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// What each function of PostgreSQL locks, and in which order, is read off its text and held against docs/locks-postgresql.md.

var (
	sqlComment = regexp.MustCompile(`--[^\n]*`)

	// What matters of a text: where a subquery or a statement begins and ends, what is written to, read, called and locked.
	lockToken = regexp.MustCompile(`[();]` +
		`|(?:FROM )?"public"\."(outbox_\w+)"\(` +
		`|(INSERT INTO|UPDATE|DELETE FROM|FROM) "public"\."(outbox\w*)"` +
		`|FOR (?:NO KEY )?UPDATE(?: OF \w+)?( SKIP LOCKED| NOWAIT)?` +
		`|ON CONFLICT \([^)]*\) DO UPDATE`)
)

// locksOf are the locks of a file of PostgreSQL, as docs/locks-postgresql.md writes them. In a statement rows are locked first and then
// written to.
func locksOf(text string) string {
	var steps, locks, writes [][2]string // a table or function, and what is done to it
	from := []string{""}                 // the table that each of the open subqueries reads
	into := ""                           // the table of the last insert
	end := func() {
		steps, locks, writes, from = append(append(steps, locks...), writes...), nil, nil, []string{""}
	}
	text = sqlComment.ReplaceAllString(text, "")
	if _, body, isFunction := strings.Cut(text, "AS $outbox$"); isFunction {
		text = body
	}
	for _, m := range lockToken.FindAllStringSubmatch(text, -1) {
		name := func(n string) string { return strings.TrimPrefix(n, "outbox_") }
		switch verb := m[2]; {
		case m[1] != "":
			writes = append(writes, [2]string{"(" + name(m[1]) + ")"})
			from = append(from, "")
		case verb == "FROM":
			from[len(from)-1] = name(m[3])
		case verb == "INSERT INTO":
			into = name(m[3])
			writes = append(writes, [2]string{into, "+"})
		case verb != "":
			writes = append(writes, [2]string{name(m[3]), "X"})
		case strings.HasPrefix(m[0], "FOR "):
			sign := map[string]string{"": "U", " SKIP LOCKED": "U?", " NOWAIT": "U!"}[m[4]]
			locks = append(locks, [2]string{from[len(from)-1], sign})
		case strings.HasPrefix(m[0], "ON CONFLICT"):
			writes = append(writes, [2]string{into, "X"})
		case m[0] == "(":
			from = append(from, "")
		case m[0] == ")":
			from = from[:max(1, len(from)-1)]
		default:
			end()
		}
	}
	end()
	return inOrder(steps)
}

// inOrder writes steps in one line: what is done to one table without another between is one step.
func inOrder(steps [][2]string) string {
	var b strings.Builder
	for i, s := range steps {
		switch {
		case i > 0 && s == steps[i-1]:
		case i > 0 && s[0] == steps[i-1][0]:
			b.WriteString(", " + s[1])
		default:
			b.WriteString(" → " + strings.TrimSpace(s[0]+" "+s[1]))
		}
	}
	return strings.TrimPrefix(b.String(), " → ")
}

var postgresRow = regexp.MustCompile(`(?m)^\| ([a-z]\w+) \| (.+) \|$`)

func TestTheTableOfPostgreSQLsLocksIsTrue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "locks-postgresql.md"))
	require.NoError(t, err)
	said, read := map[string]string{}, map[string]string{}
	for _, row := range postgresRow.FindAllStringSubmatch(string(text), -1) {
		said[row[1]] = row[2]
	}
	for _, folder := range []string{"operations", "procedures"} {
		for file, text := range sqlFiles(t, outbox.Postgres{}, folder+"/*") {
			if locks := locksOf(text); locks != "" {
				read[strings.TrimSuffix(strings.TrimPrefix(file, folder+"/outbox_"), ".sql")] = locks
			}
		}
	}
	assert.Equal(t, read, said)
}
