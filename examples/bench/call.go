package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const drainCall = "drain_call"

// measureCalls measures draining beside the functions that the product calls, called in a loop with nothing around them: what the
// product costs beyond its database.
func measureCalls(ctx context.Context, b *bench) ([]result, error) {
	text, err := b.statement("work", 0)
	if err != nil {
		return nil, err
	}
	b.showStatements(drainCall, text)
	d := draining{messages: b.count(150_000), inFlight: 2000}
	bare := func(ctx context.Context, b *bench) (time.Duration, error) {
		return byWorkers(ctx, d, func() (worker, error) { return b.caller(ctx, text) })
	}
	prepare := func(ctx context.Context) error { return b.fill(ctx, d.messages, 1, false) }
	bares, products, err := b.compare(ctx, prepare, d.side(b, bare), d.side(b, d.product))
	if err != nil {
		return nil, err
	}
	r := perSecond(products[0], bares[0])
	r.MaxInFlight = d.inFlight
	return []result{r}, nil
}

// A caller settles what it has taken and claims again, in one call, on one connection.
type caller struct {
	*sql.Conn
	text  string
	owner string
	taken []int64
}

func (b *bench) caller(ctx context.Context, text string) (*caller, error) {
	conn, err := b.Conn(ctx)
	return &caller{Conn: conn, text: text, owner: uuid.NewString()}, err
}

func (c *caller) drain(ctx context.Context, _ draining) error {
	for {
		if err := c.call(ctx); err != nil {
			return fmt.Errorf("work: %w", err)
		}
		if len(c.taken) == 0 {
			return nil
		}
	}
}

func (c *caller) call(ctx context.Context) (err error) {
	settle, claim, err := c.arguments()
	if err != nil {
		return err
	}
	rows, err := c.QueryContext(ctx, c.text, settle, claim)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	c.taken = c.taken[:0]
	for rows.Next() {
		var key int64
		var m claimed
		if err := rows.Scan(&key, &m.uuid, &m.payload); err != nil {
			return err
		}
		c.taken = append(c.taken, key)
	}
	return rows.Err()
}

// arguments end the lease of the last call, and take one of their own.
func (c *caller) arguments() (settle, claim string, err error) {
	type object map[string]any
	ended := c.owner
	c.owner = uuid.NewString()
	var texts [2][]byte
	for i, o := range []object{
		{"worker": "bench", "own": true, "over": []string{ended},
			"groups": []object{{"owner": ended, "outcome": 0, "seqs": c.taken}}},
		{"worker": "bench", "owner": c.owner, "lease_ms": 30_000, "limit": bareClaim, "run": 100, "first": true, "give_back": 0,
			"topics": []object{{"key": topicKey(topicName(0)), "quota": bareClaim}}},
	} {
		if texts[i], err = json.Marshal(o); err != nil {
			return "", "", err
		}
	}
	return string(texts[0]), string(texts[1]), nil
}
