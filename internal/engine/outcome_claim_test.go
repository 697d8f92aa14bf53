package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/base"
)

type serverError int32

func (serverError) Error() string           { return "of SQL Server" }
func (e serverError) SQLErrorNumber() int32 { return int32(e) }
func (serverError) SQLErrorClass() uint8    { return 16 }

// A claim that was committed and could not be read must not pass for one that did not happen: it would be run again under its token.
func TestTrap_AClaimThatCouldNotBeReadIsOfUnknownOutcome(t *testing.T) {
	require.ErrorIs(t, unknown(serverError(claimedUnread)), base.ErrUnknownOutcome)
	require.NotErrorIs(t, unknown(serverError(1205)), base.ErrUnknownOutcome)
	require.ErrorIs(t, unknown(errors.New("broken pipe")), base.ErrUnknownOutcome)
}
