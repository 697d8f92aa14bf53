package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

// A result is the end of the story, counted in the databases.
type result struct {
	tenants, published, delivered int
	doubled                       int
	open                          int // messages of any kind that have not come to a good end
}

// audit compares what was published with what the handlers wrote, for every tenant that there has been.
func (s *shop) audit(ctx context.Context, files folder) (*result, error) {
	r := &result{tenants: len(s.published)}
	for tenant, names := range s.published {
		if err := r.count(ctx, tenant, dsn(files.file(tenant+".db")), names); err != nil {
			return nil, fmt.Errorf("count the orders of %s: %w", tenant, err)
		}
	}
	return r, nil
}

func (r *result) count(ctx context.Context, tenant, dsn string, published []string) (err error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, shippedListSQL, tenant)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	times := map[string]int{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		times[name]++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	r.published += len(published)
	for _, name := range published {
		if times[name] > 0 {
			r.delivered++
			r.doubled += times[name] - 1
		}
	}
	open := 0
	err = db.QueryRowContext(ctx, outboxOpenSQL, outbox.Done).Scan(&open)
	r.open += open
	return err
}

// print ends with the line that counts. Anything else than all orders, once, is an error.
func (r *result) print(screen *stage.Screen) error {
	lost := r.published - r.delivered
	screen.Print("\ntenants %d, published %d, delivered %d, lost %d", r.tenants, r.published, r.delivered, lost)
	if lost+r.doubled+r.open > 0 {
		return fmt.Errorf("every order should have been shipped once: %d lost, %d shipped again, %d messages not done", lost, r.doubled, r.open)
	}
	return nil
}
