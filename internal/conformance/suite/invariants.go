package suite

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The invariants hold after every test. Each is a sentence, and a query that counts the rows that break it.
type invariant struct{ sentence, query string }

// invariantsIn reads those in a file: a comment, and a query, each.
func invariantsIn(file string) (all []invariant) {
	_, text, _ := strings.Cut(statement(path.Join("invariants", file)), "\n\n") // what the file is
	for part := range strings.SplitSeq(text+";", ";\n\n") {
		sentence, query, _ := strings.Cut(strings.TrimPrefix(part, "-- "), "\n")
		all = append(all, invariant{sentence, strings.TrimSuffix(query, ";")})
	}
	return all
}

// CheckInvariants looks at the tables that the test leaves behind, if there are any.
func (f *Fixture) CheckInvariants() {
	f.T.Helper()
	// The test's own context has ended. A lock that it has left behind shows as a timeout here.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := f.count(ctx, statement("count_messages")); err != nil {
		if f.installed(ctx, f.Config.Dialect.Traits().Table) {
			f.T.Errorf("reading the table after the test: %v", err)
		}
		return
	}
	f.checkAll(ctx, "messages")
	f.checkAll(ctx, "streams")
	f.checkRepeated(ctx)
	switch n, err := f.count(ctx, statement("count_joins")); {
	case err == nil && n > 0:
		f.checkAll(ctx, "joins")
	case err != nil && f.installed(ctx, f.JoinTable("join")):
		f.T.Errorf("reading the joins after the test: %v", err)
	}
}

// checkRepeated checks the columns that copy the status for the indexes, on PostgreSQL.
func (f *Fixture) checkRepeated(ctx context.Context) {
	f.T.Helper()
	if f.DB.Name == testdb.Postgres {
		f.checkAll(ctx, "postgres")
	}
}

// checkAll reports an error for each invariant of a file that does not hold. As long as all of them hold, it is one statement.
func (f *Fixture) checkAll(ctx context.Context, file string) {
	f.T.Helper()
	all := invariantsIn(file)
	f.NotEmpty(all, file)
	counts := make([]string, len(all))
	for i, one := range all {
		counts[i] = "(" + one.query + ")"
	}
	if n, err := f.count(ctx, "SELECT "+strings.Join(counts, " + ")); err == nil && n == 0 {
		return
	}
	for _, one := range all {
		if n, err := f.count(ctx, one.query); err != nil {
			f.T.Errorf("checking that %s: %v", one.sentence, err)
		} else if n != 0 {
			f.T.Errorf("it does not hold that %s: %d rows", one.sentence, n)
		}
	}
}

// count is the only number that a query returns, which SQL completes.
func (f *Fixture) count(ctx context.Context, query string) (n int, err error) {
	err = f.DB.QueryRowContext(ctx, f.SQL("%s", query)).Scan(&n)
	return n, err
}

// installed says whether a table is there, given its name in the default outbox, by asking the catalog.
func (f *Fixture) installed(ctx context.Context, table string) bool {
	if f.Config.Table != "" {
		table = strings.Replace(table, f.Config.Dialect.Traits().Table, f.Config.Table, 1)
	}
	quote := f.Config.Dialect.Quote
	query := f.catalogQuery("installed.sql", "{table}", Literal(table), "{qualified}", Literal(quote(f.Schema())+"."+quote(table)))
	var n int
	err := f.DB.QueryRowContext(ctx, query).Scan(&n)
	if err != nil {
		f.T.Errorf("asking whether the table is there: %v", err)
	}
	return n > 0
}

// Literal doubles the quotes of what goes between quotes.
func Literal(text string) string { return strings.ReplaceAll(text, "'", "''") }
