package outbox

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// names are the schema and table of one outbox. All else that it creates is named after the table.
type names struct {
	dialect       Dialect
	schema, table string
	role          string // of RoleSQL; empty where that is named after schema and table
}

// Quoted identifiers are where names stand in the files; comments and the rest of literals are left as they are.
var (
	doubleQuoted = regexp.MustCompile(`--[^\n]*|'(?:[^']|'')*'|"[^"]+"`)
	bracketed    = regexp.MustCompile(`--[^\n]*|'(?:[^']|'')*'|\[[A-Za-z_]+\]`)
)

func newNames(dialect Dialect, schema, table string) (names, error) {
	if dialect == nil {
		return names{}, badField("Dialect", "is not set; use outbox.SQLServer{}, outbox.Postgres{} or outbox.SQLite{}")
	}
	traits := dialect.Traits()
	if schema == "" {
		schema = traits.Schema
	}
	if table == "" {
		table = traits.Table
	}
	if traits.FixedSchema && schema != traits.Schema {
		return names{}, badField("Schema", "must be empty: %s has no schemas to choose from", dialect.Name())
	}
	n := names{dialect: dialect, schema: schema, table: table}
	if err := n.validate("Schema", schema, traits.MaxName); err != nil {
		return names{}, err
	}
	suffix, err := n.longestSuffix()
	if err != nil {
		return names{}, err
	}
	return n, n.validate("Table", table, traits.MaxName-suffix)
}

func (n names) validate(field, name string, limit int) error {
	switch {
	case !utf8.ValidString(name):
		return badField(field, "is not valid UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return badField(field, "contains a control character")
	case strings.TrimSpace(name) != name:
		return badField(field, "has white space at an end")
	case strings.Contains(name, "$outbox"):
		return badField(field, "contains $outbox, which is reserved")
	case n.dialect.Traits().NameLength(name) > limit:
		return badField(field, "is longer than %d, the most that %s allows for it", limit, n.dialect.Name())
	}
	return nil
}

// qualified is the quoted name of an object of this outbox, given the default's.
func (n names) qualified(object string) string {
	return n.dialect.Quote(n.schema) + "." + n.dialect.Quote(n.rename(object))
}

func (n names) rename(object string) string {
	return strings.Replace(object, n.dialect.Traits().Table, n.table, 1)
}

// apply puts the names into a text of the dialect's files.
func (n names) apply(text string) string {
	traits := n.dialect.Traits()
	if n.schema == traits.Schema && n.table == traits.Table && n.role == "" {
		return text
	}
	return n.identifiers().ReplaceAllStringFunc(text, func(token string) string {
		switch token[0] {
		case '-':
			return token
		case '\'':
			return "'" + n.applyInLiteral(token[1:len(token)-1]) + "'"
		default:
			return n.requote(token)
		}
	})
}

// applyInLiteral does the same inside a string literal, where a quote in a name is doubled once more.
func (n names) applyInLiteral(text string) string {
	return n.identifiers().ReplaceAllStringFunc(text, func(token string) string {
		if renamed := n.requote(token); renamed != token {
			return strings.ReplaceAll(renamed, "'", "''")
		}
		return token
	})
}

func (n names) requote(token string) string {
	traits := n.dialect.Traits()
	switch name := token[1 : len(token)-1]; {
	case strings.EqualFold(name, traits.Schema+"_"+traits.Table+"_role"):
		return n.dialect.Quote(n.roleName())
	case name == traits.Schema:
		return n.dialect.Quote(n.schema)
	case strings.Contains(name, traits.Table):
		return n.dialect.Quote(n.rename(name))
	default:
		return token
	}
}

// roleName is the role's: a database has one set of roles for all its schemas, and so the schema is in it.
func (n names) roleName() string {
	if n.role != "" {
		return n.role
	}
	suffix := "_role"
	if n.dialect.Traits().Table == "Outbox" {
		suffix = "_Role"
	}
	return n.schema + "_" + n.table + suffix
}

func (n names) identifiers() *regexp.Regexp {
	if n.dialect.Quote("x") == "[x]" {
		return bracketed
	}
	return doubleQuoted
}

// longestSuffix is how much the longest name in the files adds to the table's.
func (n names) longestSuffix() (int, error) {
	longest := 0
	err := fs.WalkDir(n.dialect.Files(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(n.dialect.Files(), path)
		if err != nil {
			return err
		}
		table := n.dialect.Traits().Table
		for _, token := range n.identifiers().FindAllString(string(text), -1) {
			if token[0] != '-' && token[0] != '\'' && strings.Contains(token, table) {
				longest = max(longest, len(token)-2-len(table))
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the schema files: %w", err)
	}
	return longest, nil
}
