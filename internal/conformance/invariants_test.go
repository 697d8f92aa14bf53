package conformance

import (
	"context"
	"strings"
	"time"
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

// checkInvariants looks at the table that the test leaves behind, if there is one.
func (f *fixture) checkInvariants() {
	f.t.Helper()
	// The test's own context has ended. A lock that it has left behind shows as a timeout here.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var n int
	if err := f.db.QueryRowContext(ctx, f.sql("SELECT COUNT(*) FROM {outbox}")).Scan(&n); err != nil {
		if !f.installed(ctx) {
			return
		}
		f.t.Errorf("reading the table after the test: %v", err)
		return
	}
	for name, broken := range invariants {
		if err := f.db.QueryRowContext(ctx, f.sql("SELECT COUNT(*) FROM {outbox} WHERE %s", broken)).Scan(&n); err != nil {
			f.t.Errorf("checking that %s: %v", name, err)
		} else if n != 0 {
			f.t.Errorf("it does not hold that %s: %d messages", name, n)
		}
	}
}

// installed says whether the table is there, by asking the catalog.
func (f *fixture) installed(ctx context.Context) bool {
	table := f.config.Table
	if table == "" {
		table = f.config.Dialect.Traits().Table
	}
	var n int
	var err error
	if f.config.Dialect.Traits().FixedSchema {
		err = f.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_master WHERE name = ?1", table).Scan(&n)
	} else {
		err = f.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '"+literal(f.schema())+
			"' AND table_name = '"+literal(table)+"'").Scan(&n)
	}
	if err != nil {
		f.t.Errorf("asking whether the table is there: %v", err)
	}
	return n > 0
}

// literal doubles the quotes of what goes between quotes.
func literal(text string) string { return strings.ReplaceAll(text, "'", "''") }
