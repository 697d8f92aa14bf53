package outbox

import (
	"crypto/sha256"
	"encoding/binary"
)

// topicKey is a topic in eight bytes, for indexes of fixed width: the first of its SHA-256, on every database the same. Should
// two topics ever have the same, nothing is lost: see Outbox.strangers.
func topicKey(topic string) int64 {
	sum := sha256.Sum256([]byte(topic))
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // the bits matter, not the number
}
