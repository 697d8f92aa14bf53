package dialect

import (
	"database/sql"
	"net/url"
	"slices"
	"strings"

	"github.com/incursa/watermill-outbox/internal/field"
)

// sqliteSettings are what a DSN has to settle, whatever the value, and what happens otherwise.
var sqliteSettings = []struct {
	setting, without string
	settled          func(name, value string) bool // of a parameter, in lower case
}{
	{"_pragma=journal_mode(WAL)", "readers and the writer block each other", func(name, value string) bool {
		return name == "_pragma" && strings.HasPrefix(value, "journal_mode") || name == "_journal_mode" || name == "_journal"
	}},
	{"_pragma=busy_timeout(10000)", "a second writer fails at once instead of waiting", func(name, value string) bool {
		return name == "_pragma" && strings.HasPrefix(value, "busy_timeout") || name == "_busy_timeout" || name == "_timeout"
	}},
	{"_txlock=immediate", "a transaction that reads before it writes may fail, whatever the timeout", func(name, value string) bool {
		return name == "_txlock" && (value == "immediate" || value == "exclusive")
	}},
}

// RefuseSQLite returns a *field.Error if the driver of db, which is not open yet, is certain not to be SQLite's, or if the DSN would
// fail later: it is of a database in memory, or lacks a setting.
func RefuseSQLite(db *sql.DB, dsn string) error {
	if of := OfDriver(driverOf(db)); of != nil && of.Name() != (SQLite{}).Name() {
		return field.Bad("driverName", "is a driver for %s; OpenSQLite is for SQLite, and sql.Open for all others", of.Name())
	}
	name, query, _ := strings.Cut(dsn, "?")
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return field.Bad("dsn", "has parameters that cannot be read: %v", err)
	}
	if name = strings.TrimPrefix(name, "file:"); name == "" || name == ":memory:" || parameters.Get("mode") == "memory" {
		return field.Bad("dsn", "is of a database in memory, of which each connection of the pool has its own, or else locks the others out; "+
			"use a file, such as one in t.TempDir()")
	}
	var lacks []string
	for _, s := range sqliteSettings {
		if !anyParameter(parameters, s.settled) {
			lacks = append(lacks, s.setting+", without which "+s.without)
		}
	}
	if len(lacks) > 0 {
		return field.Bad("dsn", "lacks %s", strings.Join(lacks, "; "))
	}
	return nil
}

func anyParameter(parameters url.Values, is func(name, value string) bool) bool {
	for name, values := range parameters {
		if slices.ContainsFunc(values, func(value string) bool { return is(strings.ToLower(name), strings.ToLower(value)) }) {
			return true
		}
	}
	return false
}
