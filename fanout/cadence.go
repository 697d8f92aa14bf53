package fanout

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// slice is the number of the interval in which a message was logged.
func (c Cadence) slice(loggedAt time.Time) int64 { return loggedAt.UnixNano() / int64(c.Every) }

// due is when a slice is sent.
func (c Cadence) due(policy string, slice int64) time.Time {
	return time.Unix(0, (slice+1)*int64(c.Every)).Add(c.delay(policy, slice))
}

// delay is the slice's part of the jitter.
func (c Cadence) delay(policy string, slice int64) time.Duration {
	if c.Jitter == 0 {
		return 0
	}
	hash := fnv.New64a()
	_, _ = hash.Write(binary.BigEndian.AppendUint64([]byte(policy), uint64(slice))) // never fails
	return time.Duration(mix(hash.Sum64()) % (uint64(c.Jitter) + 1))
}

// mix spreads values that differ only in their last bytes.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// cut keeps the messages whose slices are due, by the clock of the database, and returns when the next slice is due. It
// stops at the first message that is not due: later messages in the log wait for it.
func (p *Policy) cut(messages []outbox.LogMessage) (due []outbox.LogMessage, wait time.Duration) {
	if p.Cadence.Every == 0 {
		return messages, 0
	}
	for i, msg := range messages {
		now := msg.LoggedAt.Add(msg.Age)
		if wait := p.Cadence.due(p.Name, p.Cadence.slice(msg.LoggedAt)).Sub(now); wait > 0 {
			return messages[:i], wait
		}
	}
	return messages, 0
}
