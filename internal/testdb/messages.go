package testdb

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"strings"
)

//go:embed messages.sql
var messages string

// Expand replaces names in braces, of small letters, _ and @, and leaves other braces as they are.
func Expand(text string, meaning func(name string) string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, "}")
		if closed && name != "" && strings.Trim(name, "@_abcdefghijklmnopqrstuvwxyz") == "" {
			b.WriteString(meaning(name))
			text = after
		} else {
			b.WriteByte('{')
			text = rest
		}
	}
}

// Messages is a query in parentheses of all messages as they stand: contents, state and lease in one row. Those without a
// state are in it if they are in the log. table and column give names of the default outbox as they are in the database.
func Messages(table, column func(name string) string) string {
	_, query, _ := strings.Cut(messages, "\n") // without its comment: others put it into a line of their own
	return Expand(strings.TrimSpace(query), func(name string) string {
		if name, is := strings.CutPrefix(name, "@"); is {
			return table(name)
		}
		return column(name)
	})
}

// Column is the name of a column: snake_case, on SQL Server PascalCase as in the specification.
func Column(backend, name string) string {
	switch {
	case backend != SQLServer:
		return name
	case name == "due_at":
		return "DueTimeUtc"
	default:
		return strings.Join(capitalized(name), "")
	}
}

// Part is the default name of a table of the outbox's beside the messages' own, whose name is table: "state", "log_pending".
func Part(backend, table, name string) string {
	switch {
	case name == "":
		return table
	case backend != SQLServer:
		return table + "_" + name
	default:
		return table + "_" + strings.Join(capitalized(name), "_")
	}
}

func capitalized(name string) []string {
	words := strings.Split(name, "_")
	for i, word := range words {
		words[i] = strings.ToUpper(word[:1]) + word[1:]
	}
	return words
}

// TopicKey is what the outbox has for a topic.
func TopicKey(topic string) int64 {
	sum := sha256.Sum256([]byte(topic))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // the bits matter, not the number
}
