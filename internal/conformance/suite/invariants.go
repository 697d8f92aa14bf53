package suite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The invariants hold in every row after every test. Each is a condition that no row may fulfil.
var invariants = map[string]string{
	"the status is one of five":                "{status} NOT IN (0, 1, 2, 3, 4)",
	"no message is both held and ended":        "{status} >= 2 AND ({owner_token} IS NOT NULL OR {locked_until} IS NOT NULL)",
	"no lease without an owner":                "{locked_until} IS NOT NULL AND {owner_token} IS NULL",
	"no owner without a lease":                 "{owner_token} IS NOT NULL AND {locked_until} IS NULL",
	"exactly what is in progress is held":      "({status} = 1 AND {owner_token} IS NULL) OR ({status} <> 1 AND {owner_token} IS NOT NULL)",
	"exactly what has ended has an end":        "({status} >= 2 AND {processed_at} IS NULL) OR ({status} < 2 AND {processed_at} IS NOT NULL)",
	"exactly what has ended says who ended it": "({status} >= 2 AND {processed_by} IS NULL) OR ({status} < 2 AND {processed_by} IS NOT NULL)",
	"attempts are never negative":              "{retry_count} < 0",
}

// CheckInvariants looks at the table that the test leaves behind, if there is one.
func (f *Fixture) CheckInvariants() {
	f.T.Helper()
	// The test's own context has ended. A lock that it has left behind shows as a timeout here.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	anyBroken := strings.Join(slices.Collect(maps.Values(invariants)), " OR ")
	var n int
	if err := f.DB.QueryRowContext(ctx, f.SQL("SELECT COUNT(*) FROM {all} WHERE %s", anyBroken)).Scan(&n); err != nil {
		if !f.installed(ctx, f.Config.Dialect.Traits().Table) {
			return
		}
		f.T.Errorf("reading the table after the test: %v", err)
		return
	}
	if n > 0 {
		for name, broken := range invariants {
			f.checkHolds(ctx, name, "{all} WHERE "+broken)
		}
	}
	f.checkJoinInvariants(ctx)
	f.checkAll(ctx, streamInvariants)
	f.checkRepeated(ctx)
}

// checkRepeated checks the columns that copy the status for the indexes, on PostgreSQL.
func (f *Fixture) checkRepeated(ctx context.Context) {
	f.T.Helper()
	if f.DB.Name == testdb.Postgres {
		f.checkHolds(ctx, "ready and dead_at repeat the status", "{outbox_state} r WHERE "+repeatedWrong)
	}
}

// repeatedWrong holds for a state r on PostgreSQL that is in an index in which it does not belong, or not in one in which it does.
const repeatedWrong = "r.ready <> (r.status = 0) OR r.dead_at IS DISTINCT FROM CASE r.status WHEN 3 THEN r.processed_at END"

// checkHolds reports an error if rows break an invariant.
func (f *Fixture) checkHolds(ctx context.Context, name, broken string) {
	f.T.Helper()
	var n int
	if err := f.DB.QueryRowContext(ctx, f.SQL("SELECT COUNT(*) FROM %s", broken)).Scan(&n); err != nil {
		f.T.Errorf("checking that %s: %v", name, err)
	} else if n != 0 {
		f.T.Errorf("it does not hold that %s: %d rows", name, n)
	}
}

// checkAll checks invariants that are pairs of a table and a condition. As long as all of them hold, it is one statement.
func (f *Fixture) checkAll(ctx context.Context, invariants map[string][2]string) {
	f.T.Helper()
	var counts []string
	for _, broken := range invariants {
		counts = append(counts, fmt.Sprintf("(SELECT COUNT(*) FROM %s r WHERE %s)", broken[0], broken[1]))
	}
	var n int
	if err := f.DB.QueryRowContext(ctx, f.SQL("SELECT %s", strings.Join(counts, " + "))).Scan(&n); err == nil && n == 0 {
		return
	}
	for name, broken := range invariants {
		f.checkHolds(ctx, name, fmt.Sprintf("%s r WHERE %s", broken[0], broken[1]))
	}
}

// The same for joins. Each is a table and a condition that none of its rows, which is called r, may fulfil.
var joinInvariants = map[string][2]string{
	"the status of a join is one of four":                                    {"{join}", "{status} NOT IN (0, 1, 2, 3)"},
	"a join has the status of its verdict, pending only while there is none": {"{join}", "{status} <> {verdict}"},
	"never more steps have ended than were expected":                         {"{join}", "{completed_steps} + {failed_steps} > {expected_steps}"},
	"counters are never negative":                                            {"{join}", "{completed_steps} < 0 OR {failed_steps} < 0"},
	"a pending join has counted its completed steps":                         {"{join}", "{status} = 0 AND {completed_steps} <> " + membersOf("m.{status} = 1")},
	"a pending join has counted its failed steps":                            {"{join}", "{status} = 0 AND {failed_steps} <> " + membersOf("m.{status} = 2")},
	"a join knows how many steps it has":                                     {"{join}", "{status} = 0 AND " + membersOf("1 = 1") + " <> (SELECT COALESCE(MAX(s.{attached}), -1) FROM {size} s WHERE s.{join_id} = r.{join_id})"},
	"no join has more steps than it expects":                                 {"{join}", membersOf("1 = 1") + " > {expected_steps}"},
	"the state of a step is one of three":                                    {"{member}", "{status} NOT IN (0, 1, 2)"},
	"no step is without its join":                                            {"{member}", "NOT EXISTS (SELECT 1 FROM {join} j WHERE j.{join_id} = r.{join_id})"},
	"no wait is without its join":                                            {"{wait}", "NOT EXISTS (SELECT 1 FROM {join} j WHERE j.{join_id} = r.{join_id})"},
	"no size is without its join":                                            {"{size}", "NOT EXISTS (SELECT 1 FROM {join} j WHERE j.{join_id} = r.{join_id})"},
	"no step is pending whose message has ended": {"{member}",
		"{status} = 0 AND {ends_by} = 0 AND EXISTS (SELECT 1 FROM {all} WHERE messages.{message_id} = r.{step} AND messages.{status} >= 2)"},
}

// membersOf is the number of steps of the join r that a condition holds for.
func membersOf(condition string) string {
	return "(SELECT COUNT(*) FROM {member} m WHERE m.{join_id} = r.{join_id} AND " + condition + ")"
}

// checkJoinInvariants looks at the tables of joins, if there are any.
func (f *Fixture) checkJoinInvariants(ctx context.Context) {
	f.T.Helper()
	var n int
	if err := f.DB.QueryRowContext(ctx, f.SQL("SELECT (SELECT COUNT(*) FROM {join}) + (SELECT COUNT(*) FROM {member})")).Scan(&n); err != nil {
		if f.installed(ctx, f.JoinTable("join")) {
			f.T.Errorf("reading the joins after the test: %v", err)
		}
		return
	}
	if n == 0 {
		return
	}
	f.checkAll(ctx, joinInvariants)
}

// installed says whether a table is there, given its name in the default outbox, by asking the catalog.
func (f *Fixture) installed(ctx context.Context, table string) bool {
	if f.Config.Table != "" {
		table = strings.Replace(table, f.Config.Dialect.Traits().Table, f.Config.Table, 1)
	}
	quote := f.Config.Dialect.Quote
	query := map[string]string{
		testdb.SQLite:    "SELECT COUNT(*) FROM sqlite_master WHERE name = '" + Literal(table) + "'",
		testdb.Postgres:  "SELECT COUNT(to_regclass('" + Literal(quote(f.Schema())+"."+quote(table)) + "'))",
		testdb.SQLServer: "SELECT COUNT(OBJECT_ID(N'" + Literal(quote(f.Schema())+"."+quote(table)) + "'))",
	}[f.DB.Name]
	var n int
	err := f.DB.QueryRowContext(ctx, query).Scan(&n)
	if err != nil {
		f.T.Errorf("asking whether the table is there: %v", err)
	}
	return n > 0
}

// Literal doubles the quotes of what goes between quotes.
func Literal(text string) string { return strings.ReplaceAll(text, "'", "''") }
