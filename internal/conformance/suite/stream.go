package suite

import (
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
)

// Ordered enqueues n messages of each of some streams, in turn, and answers their ids. Their uuids count within the stream.
func (f *Fixture) Ordered(topic string, streams, n int) []outbox.MessageID {
	f.T.Helper()
	return f.Enqueue(OrderedMessages(topic, streams, 0, n)...)
}

// OrderedMessages are those numbered from and less than to.
func OrderedMessages(topic string, streams, from, to int) (messages []outbox.Message) {
	for i := from; i < to; i++ {
		for s := range streams {
			messages = append(messages, outbox.Message{Topic: topic, StreamKey: StreamKey(s), UUID: fmt.Sprint(i)})
		}
	}
	return messages
}

// StreamKey is the key of a stream.
func StreamKey(s int) string { return fmt.Sprint("stream ", s) }

// ClaimUpTo claims a number of messages of a topic.
func (f *Fixture) ClaimUpTo(limit int, topic string) []outbox.Claimed {
	f.T.Helper()
	return f.ClaimWith(outbox.ClaimParams{Topics: Quotas(topic), Limit: limit})
}

// UUIDs are those of some claims.
func UUIDs(claimed []outbox.Claimed) (uuids []string) {
	for _, c := range claimed {
		uuids = append(uuids, c.UUID)
	}
	return uuids
}

// Retried is a settlement for another attempt at once.
func Retried(c outbox.Claimed) outbox.Settlement {
	return outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Retry, Delay: -1}
}
