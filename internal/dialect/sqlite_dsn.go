package dialect

import (
	"database/sql"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// A sqliteSetting is what a DSN has to settle, and what happens otherwise. It does so as a pragma or as a parameter; of the names of a
// parameter the last that is there counts.
type sqliteSetting struct {
	setting, without string
	pragma           string
	parameters       []string
	value            *regexp.Regexp
}

var sqliteSettings = []sqliteSetting{
	{"_pragma=journal_mode(WAL)", "readers and the writer block each other",
		"journal_mode", []string{"_journal_mode", "_journal"}, regexp.MustCompile(`(?i)^(|delete|truncate|persist|memory|wal|off)$`)},
	{"_pragma=busy_timeout(10000)", "a second writer fails at once instead of waiting",
		"busy_timeout", []string{"_busy_timeout", "_timeout"}, regexp.MustCompile(`^0*[1-9][0-9]*$`)},
	{"_txlock=immediate", "a transaction that reads before it writes may fail, whatever the timeout",
		"", []string{"_txlock"}, regexp.MustCompile(`(?i)^(immediate|exclusive)$`)},
}

// aPragma is a pragma of the database, with its value as SQLite reads it.
var aPragma = regexp.MustCompile(`^\s*(?:(?i:main)\s*\.\s*)?(\w+)\s*(?:=\s*['"]?(\w+)['"]?|\(\s*['"]?(\w+)['"]?\s*\))?\s*(?:;|$)`)

// NotSQLite says what db's driver is for if it is certain not to be SQLite's; it returns an empty text otherwise.
func NotSQLite(db *sql.DB) string {
	of := ofDriver(driverOf(db))
	if of == nil || of.Name() == (SQLite{}).Name() {
		return ""
	}
	return fmt.Sprintf("is a driver for %s; OpenSQLite is for SQLite, and sql.Open for all others", of.Name())
}

// SQLiteDSN says why a DSN would fail later: it is of a database in memory, of a file other than the one it seems to name, or lacks a setting.
// It returns an empty text for others.
//
// The driver reads the parameters of each DSN. SQLite reads those of a URI, too, and decodes its path.
func SQLiteDSN(dsn string) string {
	name, query := dsn, ""
	if at := strings.IndexByte(dsn, '?'); at > 0 { // at the very beginning it is a part of the name
		name, query = dsn[:at], dsn[at+1:]
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Sprintf("has parameters that cannot be read: %v", err)
	}
	path, problem := sqlitePath(name)
	if problem != "" {
		return problem
	}
	if path == "" || path == ":memory:" || slices.Contains(parameters["mode"], "memory") || slices.Contains(parameters["vfs"], "memdb") {
		return "is of a database in memory, of which each connection of the pool has its own, or else locks the others out; " +
			"use a file, such as one in t.TempDir()"
	}
	if is := withoutLocks(parameters); is != "" {
		return "has " + is + ", with which SQLite goes without WAL or without locks; leave it out"
	}
	var lacks []string
	for _, s := range sqliteSettings {
		if !s.settled(parameters) {
			lacks = append(lacks, s.setting+", without which "+s.without)
		}
	}
	if len(lacks) == 0 {
		return ""
	}
	return "lacks " + strings.Join(lacks, "; ")
}

// sqlitePath returns the path of the file, as SQLite reads it.
func sqlitePath(name string) (path, problem string) {
	path, uri := strings.CutPrefix(name, "file:")
	switch {
	case strings.Contains(name, "\x00") || uri && strings.Contains(name, "%00"):
		return "", "has a NUL in its path, at which SQLite ends the name of the file"
	case !uri && strings.HasPrefix(strings.ToLower(strings.TrimSpace(name)), "file:"):
		return "", "is the name of a file to SQLite, and not a URI; begin it with file: in lower case"
	case !uri:
		return name, ""
	case strings.Contains(path, "#"):
		return "", "has a # in its path, at which SQLite ends the name of the file; write %23"
	}
	if authority, found := strings.CutPrefix(path, "//"); found {
		host, rest, root := strings.Cut(authority, "/")
		if host != "" && host != "localhost" {
			return "", fmt.Sprintf("names the host %q; a path follows file: at once, or file://", host)
		}
		if path = ""; root {
			path = "/" + rest
		}
	}
	if decoded, err := url.PathUnescape(path); err == nil { // SQLite leaves what is no escape as it is
		path = decoded
	}
	return path, ""
}

// withoutLocks returns the parameter that takes from SQLite what several connections need.
func withoutLocks(parameters url.Values) string {
	for _, name := range []string{"vfs", "nolock", "immutable"} {
		for _, value := range parameters[name] {
			switch strings.ToLower(value) {
			case "unix-none", "unix-dotfile", "win32-none", "1", "yes", "true", "on":
				return name + "=" + value
			}
		}
	}
	return ""
}

// settled reports whether the setting has a value, and no other than those that will do.
func (s sqliteSetting) settled(parameters url.Values) bool {
	var values []string
	for _, pragma := range parameters["_pragma"] {
		if p := aPragma.FindStringSubmatch(pragma); p != nil && strings.EqualFold(p[1], s.pragma) {
			values = append(values, p[2]+p[3])
		}
	}
	value := ""
	for _, name := range s.parameters {
		if parameters.Has(name) {
			value = parameters.Get(name)
		}
	}
	if value != "" {
		values = append(values, value)
	}
	return len(values) > 0 && !slices.ContainsFunc(values, func(value string) bool { return !s.value.MatchString(value) })
}
