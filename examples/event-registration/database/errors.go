package database

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	outbox "github.com/incursa/watermill-outbox"
)

// Away reports whether an error is one of reaching the database, or says that it is too busy: trying again later may help.
func Away(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		// connections, resources, shutting down or starting
		for _, class := range []string{"08", "53", "57P"} {
			if strings.HasPrefix(state.SQLState(), class) {
				return true
			}
		}
	}
	var network net.Error
	return outbox.IsRetryable(err) || pgconn.SafeToRetry(err) || errors.Is(err, outbox.ErrUnknownOutcome) || errors.As(err, &network) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
