package dialect

import (
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strings"
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

// NotSQLite says what db's driver is for if it is certain not to be SQLite's; it returns an empty text otherwise.
func NotSQLite(db *sql.DB) string {
	of := ofDriver(driverOf(db))
	if of == nil || of.Name() == (SQLite{}).Name() {
		return ""
	}
	return fmt.Sprintf("is a driver for %s; OpenSQLite is for SQLite, and sql.Open for all others", of.Name())
}

// SQLiteDSN says why a DSN would fail later: it is of a database in memory, or lacks a setting. It returns an empty text for others.
func SQLiteDSN(dsn string) string {
	name, query, _ := strings.Cut(dsn, "?")
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Sprintf("has parameters that cannot be read: %v", err)
	}
	if name = strings.TrimPrefix(name, "file:"); name == "" || name == ":memory:" || parameters.Get("mode") == "memory" {
		return "is of a database in memory, of which each connection of the pool has its own, or else locks the others out; " +
			"use a file, such as one in t.TempDir()"
	}
	var lacks []string
	for _, s := range sqliteSettings {
		if !anyParameter(parameters, s.settled) {
			lacks = append(lacks, s.setting+", without which "+s.without)
		}
	}
	if len(lacks) == 0 {
		return ""
	}
	return "lacks " + strings.Join(lacks, "; ")
}

func anyParameter(parameters url.Values, is func(name, value string) bool) bool {
	for name, values := range parameters {
		if slices.ContainsFunc(values, func(value string) bool { return is(strings.ToLower(name), strings.ToLower(value)) }) {
			return true
		}
	}
	return false
}
