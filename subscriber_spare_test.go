package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A spare connection that breaks before anything was sent is replaced and the call repeated. If the call may have been
// committed it is not repeated: the second run would be told that the leases are gone.
func TestSpare_ABrokenConnectionIsReplacedOnlyIfNothingWasSent(t *testing.T) {
	cases := map[string]struct {
		err  error
		runs int
	}{
		"nothing sent":  {driver.ErrBadConn, 2},
		"may have been": {fmt.Errorf("%w: %w", ErrUnknownOutcome, driver.ErrBadConn), 1},
		"another error": {context.Canceled, 1},
	}
	db := sql.OpenDB(silent{})
	defer func() { require.NoError(t, db.Close()) }()
	db.SetMaxOpenConns(4)
	for name, test := range cases {
		s, runs := newSpare(db), 0
		err := s.run(t.Context(), time.Second, func(x Executor) error {
			if runs++; runs == 1 {
				return test.err
			}
			_, err := x.ExecContext(t.Context(), "SELECT 1")
			return err
		})
		s.release()
		require.Equal(t, test.runs, runs, name)
		if test.runs == 1 {
			require.ErrorIs(t, err, test.err, name)
		} else {
			require.NoError(t, err, name)
		}
	}
}

// silent is a database that runs any statement and does nothing.
type silent struct{ driver.Conn }

func (silent) Connect(context.Context) (driver.Conn, error) { return silent{}, nil }
func (silent) Driver() driver.Driver                        { return nil }
func (silent) Close() error                                 { return nil }

func (silent) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, nil
}
