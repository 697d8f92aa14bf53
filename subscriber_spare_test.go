package outbox

import (
	"context"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/testdb"
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
	testdb.ForEach(t, func(t *testing.T, db *testdb.DB) {
		db.SetMaxOpenConns(4)
		for name, test := range cases {
			s, runs := newSpare(db.DB), 0
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
	})
}
