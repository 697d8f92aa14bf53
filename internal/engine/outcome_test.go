package engine_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
)

// A refusing database answers each commit with an error.
type refusing struct{ err error }

func (r refusing) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r refusing) Driver() driver.Driver                        { return nil }
func (r refusing) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("unused") }
func (r refusing) Begin() (driver.Tx, error)                    { return r, nil }
func (r refusing) Commit() error                                { return r.err }
func (r refusing) Rollback() error                              { return nil }
func (r refusing) Close() error                                 { return nil }

func TestTrap_WhatTheErrorOfACommitProves(t *testing.T) {
	for _, c := range []struct {
		err     error
		unknown bool
	}{
		{errors.New("commit unexpectedly resulted in rollback"), false}, // pgx
		{fmt.Errorf("traced: %w", errors.New("commit unexpectedly resulted in rollback")), false},
		{errors.New("pq: Could not complete operation in a failed transaction"), false},
		{errors.New("pq: could not complete operation in a failed transaction"), false}, // the newer spelling
		{errors.New("unexpected EOF"), true},
		{errors.New("conn closed"), true},
		{driver.ErrBadConn, true},
	} {
		db := sql.OpenDB(refusing{c.err})
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		err = engine.Commit(t.Context(), tx)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.unknown, errors.Is(err, base.ErrUnknownOutcome), c.err)
		if !c.unknown {
			require.ErrorContains(t, err, "commit the transaction: a statement in it had failed, so PostgreSQL rolled it back; return the error of that statement: ")
		}
	}
}
