package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
)

// What the product is measured against: its statements without it, through the same pool.

// row is what a bare insert writes. The product makes the same of a Watermill message.
type row struct {
	id, uuid, topic string
	payload         []byte
}

func (b *bench) newRow(topic string) (row, error) {
	id, err := b.dialect.Traits().NewMessageID()
	return row{id.String(), watermill.NewUUID(), topic, b.payload}, err
}

// An insert is a way to write rows in one statement.
type insert struct {
	name, text string
	arguments  func([]row) []any
}

// inserts are the ways to write so many rows.
func (b *bench) inserts(rows int) ([]insert, error) {
	ways := []insert{{name: "insert", arguments: rowByRow}}
	if rows > 1 {
		ways = []insert{{name: "insert_rows", arguments: rowByRow}, {name: "insert_columns", arguments: columnByColumn}}
	}
	var known []insert
	for _, way := range ways {
		if !b.has(way.name) {
			continue
		}
		var err error
		if way.text, err = b.statement(way.name, rows); err != nil {
			return nil, err
		}
		known = append(known, way)
	}
	return known, nil
}

func rowByRow(rows []row) []any {
	args := make([]any, 0, 5*len(rows))
	for _, r := range rows {
		args = append(args, r.id, r.uuid, r.topic, r.payload, topicKey(r.topic))
	}
	return args
}

func columnByColumn(rows []row) []any {
	ids, uuids, topics := make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows))
	payloads, keys := make([][]byte, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		ids[i], uuids[i], topics[i], payloads[i], keys[i] = r.id, r.uuid, r.topic, r.payload, topicKey(r.topic)
	}
	return []any{ids, uuids, topics, payloads, keys}
}

// topicKey is what the tables have for a topic: the first eight bytes of its SHA-256.
func topicKey(topic string) int64 {
	sum := sha256.Sum256([]byte(topic))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // the bits matter, not the number
}

// A bareWorker claims and acks with two statements, one after the other on one connection.
type bareWorker struct {
	*sql.Conn
	keys       func([]int64) (any, error)
	claim, ack string
}

// bareWorker acks with a statement of that name.
func (b *bench) bareWorker(ctx context.Context, ackName string) (*bareWorker, error) {
	claim, err := b.statement("claim", 0)
	if err != nil {
		return nil, err
	}
	ack, err := b.statement(ackName, 0)
	if err != nil {
		return nil, err
	}
	conn, err := b.Conn(ctx)
	return &bareWorker{conn, b.keys, claim, ack}, err
}

// A claimed message is as much of a row as a handler needs.
type claimed struct {
	uuid    string
	payload []byte
}

func (w *bareWorker) take(ctx context.Context, topic string, limit int) (keys []int64, messages []claimed, err error) {
	rows, err := w.QueryContext(ctx, w.claim, topicKey(topic), limit)
	if err != nil {
		return nil, nil, fmt.Errorf("claim: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var key int64
		var m claimed
		if err := rows.Scan(&key, &m.uuid, &m.payload); err != nil {
			return nil, nil, fmt.Errorf("claim: %w", err)
		}
		keys, messages = append(keys, key), append(messages, m)
	}
	return keys, messages, rows.Err()
}

// end acks. Two workers may have locked two joins in turn: then one has to begin again.
func (w *bareWorker) end(ctx context.Context, keys []int64) error {
	list, err := w.keys(keys)
	if err != nil {
		return err
	}
	for {
		switch _, err := w.ExecContext(ctx, w.ack, list); {
		case err == nil:
			return nil
		case !outbox.IsRetryable(err) || ctx.Err() != nil:
			return fmt.Errorf("ack: %w", err)
		}
	}
}

// showStatements prints the bare statements of a figure.
func (b *bench) showStatements(figure string, texts ...string) {
	fmt.Fprintf(b.log, "\n%s\n", figure)
	for _, text := range texts {
		for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
			if len(line) > 200 {
				line = line[:200] + " …"
			}
			fmt.Fprintf(b.log, "    %s\n", line)
		}
	}
}
