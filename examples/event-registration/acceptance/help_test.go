package acceptance_test

import (
	"context"
	"database/sql"
	"time"
)

const (
	waitFor = time.Minute
	tick    = 20 * time.Millisecond
)

func joinOf(f *fixture, user string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := f.one().service.Join(ctx, tx, f.event, user)
		return err
	}
}
