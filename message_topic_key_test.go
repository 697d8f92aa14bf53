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

func TestStreamIDIsThatOfTopicAndKey(t *testing.T) {
	require.Zero(t, streamID("orders", ""), "no stream")
	require.Equal(t, topicKey("orders\x00customer 1"), streamID("orders", "customer 1"))
	require.NotEqual(t, streamID("a\nb", "c"), streamID("a", "b\nc"))
}
