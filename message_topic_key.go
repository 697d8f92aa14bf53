package outbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
)

// topicKey is a topic in eight bytes, for indexes of fixed width: the first bytes of its SHA-256, the same on every
// database. If two topics ever have the same key, nothing is lost: see Outbox.withoutStrangers.
func topicKey(topic string) int64 {
	sum := sha256.Sum256([]byte(topic))
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // the bits matter, not the number
}

// streamID is the stream of a topic and a key in eight bytes, 0 without a key. Neither contains a NUL. If two streams ever
// have the same id, they become one stream, which is still in order.
func streamID(topic, key string) int64 {
	if key == "" {
		return 0
	}
	return cmp.Or(topicKey(topic+"\x00"+key), 1)
}
