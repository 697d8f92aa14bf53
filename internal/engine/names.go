package engine

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Names are the schema and table of one outbox. All its other objects are named after the table.
type Names struct {
	dialect       dialect.Dialect
	schema, table string
	Role          string // of RoleSQL; empty if it is named after schema and table
}

// Names appear in the files as quoted identifiers; comments, and everything else in literals, stay as they are.
var (
	doubleQuoted = regexp.MustCompile(`--[^\n]*|'(?:[^']|'')*'|"[^"]+"`)
	bracketed    = regexp.MustCompile(`--[^\n]*|'(?:[^']|'')*'|\[[A-Za-z_]+\]`)
)

// A piece of a text is an identifier, a string literal, or anything else, comments included.
type piece struct {
	kind pieceKind
	text string
}

type pieceKind int

const (
	plain pieceKind = iota
	identifier
	literal
)

// splitTexts caches split. Only the texts of the files are split, so the cache is bounded.
var splitTexts sync.Map

type splitKey struct {
	pattern *regexp.Regexp
	text    string
}

// split returns the pieces of a text from the files; pattern is one of those above.
func split(pattern *regexp.Regexp, text string) []piece {
	key := splitKey{pattern, text}
	known, _ := splitTexts.Load(key)
	if pieces, ok := known.([]piece); ok {
		return pieces
	}
	var pieces []piece
	end := 0
	for _, at := range pattern.FindAllStringIndex(text, -1) {
		kind := identifier
		switch text[at[0]] {
		case '-':
			kind = plain
		case '\'':
			kind = literal
		}
		pieces = append(pieces, piece{plain, text[end:at[0]]}, piece{kind, text[at[0]:at[1]]})
		end = at[1]
	}
	pieces = append(pieces, piece{plain, text[end:]})
	splitTexts.Store(key, pieces)
	return pieces
}

// NewNames returns the names of an outbox; empty ones are the defaults. It returns a *field.Error that names a bad field.
func NewNames(d dialect.Dialect, schema, table string) (Names, error) {
	if d == nil {
		return Names{}, field.Bad("Dialect", "is not set; use outbox.SQLServer{}, outbox.Postgres{} or outbox.SQLite{}")
	}
	traits := d.Traits()
	if schema == "" {
		schema = traits.Schema
	}
	if table == "" {
		table = traits.Table
	}
	if traits.FixedSchema && schema != traits.Schema {
		return Names{}, field.Bad("Schema", "must be empty: %s has no schemas to choose from", d.Name())
	}
	n := Names{dialect: d, schema: schema, table: table}
	if err := n.Validate("Schema", schema, traits.MaxName); err != nil {
		return Names{}, err
	}
	suffix, err := n.longestSuffix()
	if err != nil {
		return Names{}, err
	}
	return n, n.Validate("Table", table, traits.MaxName-suffix)
}

// Validate checks a name, which may be as long as limit.
func (n Names) Validate(part, name string, limit int) error {
	switch {
	case !utf8.ValidString(name):
		return field.Bad(part, "is not valid UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return field.Bad(part, "contains a control character")
	case strings.TrimSpace(name) != name:
		return field.Bad(part, "has white space at an end")
	case strings.Contains(name, "$outbox"):
		return field.Bad(part, "contains $outbox, which is reserved")
	case n.reserved(name):
		return field.Bad(part, "begins with %q, which %s keeps for itself", n.dialect.Traits().Reserved, n.dialect.Name())
	case n.dialect.Traits().NameLength(name) > limit:
		return field.Bad(part, "is longer than %d, the most that %s allows for it", limit, n.dialect.Name())
	}
	return nil
}

func (n Names) reserved(name string) bool {
	reserved := n.dialect.Traits().Reserved
	return reserved != "" && len(name) >= len(reserved) && strings.EqualFold(name[:len(reserved)], reserved)
}

// Qualified returns the quoted name of an object of this outbox, given its default name.
func (n Names) Qualified(object string) string {
	return n.dialect.Quote(n.schema) + "." + n.dialect.Quote(n.rename(object))
}

func (n Names) rename(object string) string {
	return strings.Replace(object, n.dialect.Traits().Table, n.table, 1)
}

// Apply puts the names into a text from the dialect's files.
func (n Names) Apply(text string) string {
	traits := n.dialect.Traits()
	if n.schema == traits.Schema && n.table == traits.Table && n.Role == "" {
		return text
	}
	var b strings.Builder
	for _, p := range split(n.identifiers(), text) {
		switch p.kind {
		case literal:
			b.WriteString("'" + n.applyInLiteral(p.text[1:len(p.text)-1]) + "'")
		case identifier:
			b.WriteString(n.requote(p.text))
		default:
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// applyInLiteral does the same inside a string literal, where a quote in a name is doubled once more.
func (n Names) applyInLiteral(text string) string {
	var b strings.Builder
	for _, p := range split(n.identifiers(), text) {
		renamed := p.text
		if p.kind == identifier {
			renamed = n.requote(p.text)
		}
		if renamed != p.text {
			renamed = strings.ReplaceAll(renamed, "'", "''")
		}
		b.WriteString(renamed)
	}
	return b.String()
}

func (n Names) requote(token string) string {
	traits := n.dialect.Traits()
	switch name := token[1 : len(token)-1]; {
	case strings.EqualFold(name, traits.Schema+"_"+traits.Table+"_role"):
		return n.dialect.Quote(n.RoleName())
	case name == traits.Schema:
		return n.dialect.Quote(n.schema)
	case strings.Contains(name, traits.Table):
		return n.dialect.Quote(n.rename(name))
	default:
		return token
	}
}

// RoleName is the role's: a database has one set of roles for all its schemas, and so the schema is in it.
func (n Names) RoleName() string {
	if n.Role != "" {
		return n.Role
	}
	suffix := "_role"
	if n.dialect.Traits().Table == "Outbox" {
		suffix = "_Role"
	}
	return n.schema + "_" + n.table + suffix
}

func (n Names) identifiers() *regexp.Regexp {
	if n.dialect.Quote("x") == "[x]" {
		return bracketed
	}
	return doubleQuoted
}

// longestSuffixes caches longestSuffix by the dialect's name: computing it reads every file, and each new outbox needs it.
var longestSuffixes sync.Map

// longestSuffix is how much the longest name in the files adds to the table's.
func (n Names) longestSuffix() (int, error) {
	known, _ := longestSuffixes.Load(n.dialect.Name())
	if longest, ok := known.(int); ok {
		return longest, nil
	}
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
		for _, p := range split(n.identifiers(), string(text)) {
			if p.kind == identifier && strings.Contains(p.text, table) {
				longest = max(longest, len(p.text)-len(`""`)-len(table))
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the schema files: %w", err)
	}
	longestSuffixes.Store(n.dialect.Name(), longest)
	return longest, nil
}
