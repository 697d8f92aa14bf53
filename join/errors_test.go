package join

import (
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// A refusal by an operation that is newer than the library is not success.
func TestARefusalThatIsNotKnown(t *testing.T) {
	err := refused(&outbox.JoinRefusal{Reason: -99, ID: "id"})
	require.Error(t, err)
	var refusal *outbox.JoinRefusal
	require.ErrorAs(t, err, &refusal)
}
