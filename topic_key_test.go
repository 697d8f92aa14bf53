package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The key of a topic is in tables: it never changes.
func TestTopicKeyIsTheBeginningOfItsSHA256(t *testing.T) {
	require.Equal(t, int64(-0x1c4f3bbd6703e3ec), topicKey("")) // e3b0c44298fc1c14…
	require.NotEqual(t, topicKey("orders"), topicKey("Orders"))
}
