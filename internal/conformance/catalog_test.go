package conformance

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/incursa/watermill-outbox/internal/testdb"
)

// What the database's catalog knows of an outbox.

// Catalog lists everything in the schema with its definition, the same text for the same schema under another name.
func (f *fixture) Catalog() (lines []string) {
	f.T.Helper()
	for _, query := range catalogQueries[f.DB.Name] {
		query = strings.ReplaceAll(query, "{schema}", Literal(f.Schema()))
		found, err := f.Strings(f.DB, query)
		f.NoError(err, query)
		for _, line := range found {
			line = strings.ReplaceAll(line, f.Schema(), "SCHEMA")
			line = strings.Join(strings.Fields(line), " ") // how a script is cut into batches changes no more than white space
			lines = append(lines, generated.ReplaceAllString(line, "GENERATED"))
		}
	}
	return lines
}

// Names that a server makes up contain a hash or a number.
var generated = regexp.MustCompile(`[0-9a-f]{32}|_[0-9]{4,}\b`)

// SameCatalog asserts that two catalogs are the same, and tells only what is not.
func (f *fixture) SameCatalog(want, got []string) {
	f.T.Helper()
	f.NotEmpty(want)
	only := func(here, there []string) (lines []string) {
		for _, line := range here {
			if !slices.Contains(there, line) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	f.Empty(only(want, got), "missing")
	f.Empty(only(got, want), "too much")
	f.Len(got, len(want))
}

var catalogQueries = map[string][]string{
	testdb.SQLite: {"SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_master ORDER BY 1"},
	testdb.Postgres: {
		`SELECT table_name || ' ' || ordinal_position || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
		 || ' ' || is_identity || ' ' || coalesce(collation_name, '') FROM information_schema.columns WHERE table_schema = '{schema}' ORDER BY 1`,
		"SELECT indexdef FROM pg_indexes WHERE schemaname = '{schema}' ORDER BY 1",
		"SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = '{schema}'::regnamespace ORDER BY 1",
		"SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace ORDER BY 1",
		"SELECT viewname || ' ' || definition FROM pg_views WHERE schemaname = '{schema}' ORDER BY 1",
		"SELECT relname || ' ' || coalesce(reloptions::text, '') FROM pg_class WHERE relnamespace = '{schema}'::regnamespace ORDER BY 1",
	},
	testdb.SQLServer: {
		`SELECT CONCAT(TABLE_NAME, ' ', ORDINAL_POSITION, ' ', COLUMN_NAME, ' ', DATA_TYPE, ' ', CHARACTER_MAXIMUM_LENGTH, ' ', IS_NULLABLE, ' ',
		 COLLATION_NAME, ' ', DATETIME_PRECISION) FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA = '{schema}' ORDER BY 1`,
		`SELECT CONCAT(o.name, ' ', i.name, ' ', i.type_desc, ' ', i.is_unique, ' ', i.filter_definition) FROM sys.indexes i
		 JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = '{schema}' ORDER BY 1`,
		`SELECT CONCAT(o.name, ' ', o.type_desc) FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = '{schema}' ORDER BY 1`,
		`SELECT CONCAT(o.name, ' ', m.definition) FROM sys.sql_modules m JOIN sys.objects o ON o.object_id = m.object_id
		 JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = '{schema}' ORDER BY 1`,
	},
}

// Names lists the objects of a kind in the schema: table, index, view or procedure.
func (f *fixture) Names(kind string) []string {
	f.T.Helper()
	queries := map[string]map[string]string{
		testdb.SQLite: {
			"table": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
			"index": "SELECT name FROM sqlite_master WHERE type = 'index' AND name NOT LIKE 'sqlite_%'",
			"view":  "SELECT name FROM sqlite_master WHERE type = 'view'",
		},
		testdb.Postgres: {
			"table":     "SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'",
			"index":     "SELECT indexname FROM pg_indexes WHERE schemaname = '{schema}'",
			"view":      "SELECT viewname FROM pg_views WHERE schemaname = '{schema}'",
			"procedure": "SELECT proname FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace",
		},
		testdb.SQLServer: {
			"table":     "SELECT o.name FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = '{schema}' AND o.type = 'U'",
			"view":      "SELECT o.name FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = '{schema}' AND o.type = 'V'",
			"procedure": "SELECT o.name FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = '{schema}' AND o.type = 'P'",
			"index": `SELECT i.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id
				JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = '{schema}' AND i.name IS NOT NULL`,
		},
	}
	names, err := f.Strings(f.DB, strings.ReplaceAll(queries[f.DB.Name][kind], "{schema}", Literal(f.Schema())))
	f.NoError(err)
	return names
}

// Strings is the only column that a query returns.
func (f *fixture) Strings(db *testdb.DB, query string) (values []string, err error) {
	rows, err := db.QueryContext(f.Context(), query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var value sql.NullString
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		values = append(values, value.String)
	}
	return values, rows.Err()
}

// Run runs a printed script on one connection, as a tool of the database would: batch by batch.
func (f *fixture) Run(script string) error {
	f.T.Helper()
	conn, err := f.DB.Conn(f.Context())
	f.NoError(err)
	defer func() { f.NoError(conn.Close()) }()
	for _, batch := range Batches(f.Config.Dialect.Traits().BatchSeparator, script) {
		if _, err := conn.ExecContext(f.Context(), batch); err != nil {
			return fmt.Errorf("%w in\n%s", err, batch)
		}
	}
	return nil
}

// Batches splits a script at the lines that hold nothing but the separator.
func Batches(separator, script string) (list []string) {
	if separator == "" {
		return []string{script}
	}
	var batch strings.Builder
	for line := range strings.Lines(script) {
		if strings.TrimSpace(line) != separator {
			batch.WriteString(line)
			continue
		}
		list = append(list, batch.String())
		batch.Reset()
	}
	if rest := batch.String(); strings.TrimSpace(rest) != "" {
		list = append(list, rest)
	}
	return list
}
