package outbox

import (
	"cmp"

	"github.com/incursa/watermill-outbox/internal/base"
)

// topicKey stands for a topic in states and indexes. If two topics ever have the same key, nothing is lost: see
// Outbox.withoutStrangers.
func topicKey(topic string) int64 { return base.TopicKey(topic) }

// streamID is the stream of a topic and a key in eight bytes, 0 without a key. Neither contains a NUL. If two streams ever
// have the same id, they become one stream, which is still in order.
func streamID(topic, key string) int64 {
	if key == "" {
		return 0
	}
	return cmp.Or(topicKey(topic+"\x00"+key), 1)
}
