package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/join"
)

// JoinParams name a join.
type JoinParams struct {
	// ID is the join. Required.
	ID join.ID

	// By is who does it. Defaults to an empty name.
	By string
}

// SealJoin is join.Coordinator.Seal, and is recorded.
func (a *Admin) SealJoin(ctx context.Context, params JoinParams) error {
	return a.endJoin(ctx, "seal", params)
}

// CancelJoin is join.Coordinator.Cancel, and is recorded.
func (a *Admin) CancelJoin(ctx context.Context, params JoinParams) error {
	return a.endJoin(ctx, "cancel", params)
}

func (a *Admin) endJoin(ctx context.Context, verb string, params JoinParams) error {
	if params.ID == (join.ID{}) {
		return field.Bad("JoinParams.ID", "is empty")
	}
	if err := field.Text("JoinParams.By", params.By); err != nil {
		return err
	}
	record := &auditArg{By: params.By, Act: verb + " join", Selection: params.ID.String()}
	_, err := a.recorded(ctx, record, func(ctx context.Context, x base.Executor) (int, error) {
		_, err := a.run.ChangeJoin(ctx, x, "outbox_join_"+verb, struct {
			ID join.ID `json:"id"`
		}{params.ID})
		return 1, err
	})
	var refusal *base.JoinRefusal
	switch {
	case errors.As(err, &refusal) && refusal.Reason == base.NoSuchJoin:
		err = join.ErrNotFound
	case errors.As(err, &refusal) && refusal.Reason == base.JoinHasEnded:
		err = join.ErrEnded
	}
	if err != nil {
		return fmt.Errorf("%s the join %v: %w", verb, params.ID, err)
	}
	return nil
}

// PurgeJoinsParams select joins that have ended.
type PurgeJoinsParams struct {
	// OlderThan keeps joins that ended more recently. Defaults to 0: keep none.
	OlderThan time.Duration

	// By is who does it. Defaults to an empty name.
	By string
}

// PurgeJoins is join.Coordinator.Purge, and is recorded; what a Subscriber's janitor purges is not.
func (a *Admin) PurgeJoins(ctx context.Context, params PurgeJoinsParams) (joins int, err error) {
	if params.OlderThan < 0 {
		return 0, field.Bad("PurgeJoinsParams.OlderThan", "is negative")
	}
	if err := field.Text("PurgeJoinsParams.By", params.By); err != nil {
		return 0, err
	}
	arg := struct {
		OlderThanMS int64 `json:"older_than_ms"`
		Limit       int   `json:"limit"`
	}{params.OlderThan.Milliseconds(), maxBatch}
	record := &auditArg{By: params.By, Act: "purge joins", Selection: olderThan("ended joins", params.OlderThan)}
	for rows := 1; rows > 0; {
		n, err := a.recorded(ctx, record, func(ctx context.Context, x base.Executor) (n int, err error) {
			err = a.run.Run(ctx, x, "outbox_join_purge", arg, func(r *sql.Rows) error { return r.Scan(&rows, &n) })
			return n, err
		})
		joins += n
		if err != nil {
			return joins, fmt.Errorf("purge joins: %w", err)
		}
	}
	return joins, nil
}
