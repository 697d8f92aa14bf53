package join

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/base"
)

// A refusal by an operation that is newer than the library is not success.
func TestARefusalThatIsNotKnown(t *testing.T) {
	err := refused(&base.JoinRefusal{Reason: -99, ID: "id"})
	require.Error(t, err)
	var refusal *base.JoinRefusal
	require.ErrorAs(t, err, &refusal)
}
