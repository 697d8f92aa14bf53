package testdb

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// Messages is a query in parentheses of all messages as they stand: contents, state and lease in one row. Those without a
// state are in it if they are in the log. table and column give names of the default outbox as they are in the database.
func Messages(table, column func(name string) string) string {
	c := func(alias, name string) string { return alias + "." + column(name) }
	contents := ""
	for _, name := range []string{"seq", "message_id", "uuid", "topic", "payload", "correlation_id", "created_at", "due_at"} {
		contents += c("o", name) + ", "
	}
	inLog := func(of string) string {
		return fmt.Sprintf("EXISTS (SELECT 1 FROM %s g WHERE %s = %s)", table(of), c("g", "message_id"), c("o", "message_id"))
	}
	return fmt.Sprintf("(SELECT "+contents+
		"COALESCE(%s, 4) AS %s, COALESCE(%s, 0) AS %s, COALESCE(%s, %s) AS %s, %s, COALESCE(%s, 2) AS %s, %s, "+
		"CASE WHEN %s IS NULL THEN %s ELSE %s END AS %s, COALESCE(%s, CASE WHEN %s IS NULL THEN 'log' END) AS %s, "+
		"(SELECT a.%s FROM %s a WHERE %s = %s AND a.%s = (SELECT MAX(b.%s) FROM %s b WHERE %s = %s AND b.%s IS NOT NULL)) AS %s "+
		"FROM %s o LEFT JOIN %s s ON %s = %s LEFT JOIN %s l ON %s = %s LEFT JOIN %s w ON %s = %s "+
		"WHERE %s IS NOT NULL OR %s OR %s) AS messages",
		c("s", "status"), column("status"), c("s", "retry_count"), column("retry_count"),
		c("s", "next_attempt_at"), c("o", "created_at"), column("next_attempt_at"), c("s", "owner_token"),
		c("s", "flags"), column("flags"), c("l", "locked_until"),
		c("s", "seq"), c("o", "created_at"), c("s", "processed_at"), column("processed_at"),
		c("w", "name"), c("s", "seq"), column("processed_by"),
		column("error"), table("attempt"), c("a", "seq"), c("o", "seq"), column("attempt_id"),
		column("attempt_id"), table("attempt"), c("b", "seq"), c("o", "seq"), column("error"), column("last_error"),
		table(""), table("state"), c("s", "seq"), c("o", "seq"), table("lease"), c("l", "owner_token"), c("s", "owner_token"),
		table("worker"), c("w", "worker_id"), c("s", "worker_id"),
		c("s", "seq"), inLog("log"), inLog("log_pending"))
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
