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

// Of streams: each is a table and a condition that none of its rows, which is called r, may fulfil.
var streamInvariants = map[string][2]string{
	"what is ready in its stream is in a queue or arrives": {"{outbox_state}", "{status} = 5 AND NOT EXISTS (SELECT 1 FROM {queued} q WHERE q.{seq} = r.{seq} AND q.{stream_id} = r.{stream_id})" +
		" AND NOT EXISTS (SELECT 1 FROM {arrivals} a WHERE a.{seq} = r.{seq})"},
	"what is out of a stream is in its queue":    {"{outbox_state}", "{status} = 1 AND r.{stream_id} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {queued} q WHERE q.{seq} = r.{seq} AND q.{stream_id} = r.{stream_id})"},
	"nothing is ready in a stream without one":   {"{outbox_state}", "{status} = 0 AND r.{stream_id} IS NOT NULL OR {status} = 5 AND r.{stream_id} IS NULL"},
	"nothing arrives that is queued":             {"{arrivals}", "EXISTS (SELECT 1 FROM {queued} q WHERE q.{seq} = r.{seq} AND q.{stream_id} = r.{stream_id})"},
	"what is in a stream's row blocks nothing":   {"{queued}", "r.alone = 1 AND EXISTS (SELECT 1 FROM {outbox_stream} t WHERE t.{stream_id} = r.{stream_id} AND t.{status} = 2)"},
	"what is in a stream's row is all there is":  {"{queued}", "r.alone = 1 AND EXISTS (SELECT 1 FROM {outbox_queue} q WHERE q.{stream_id} = r.{stream_id})"},
	"a queue has a stream":                       {"{outbox_queue}", "NOT EXISTS (SELECT 1 FROM {outbox_stream} t WHERE t.{stream_id} = r.{stream_id})"},
	"streams without messages leave no rows":     {"{outbox_stream}", "NOT EXISTS (SELECT 1 FROM {queued} q WHERE q.{stream_id} = r.{stream_id})"},
	"a stream of which a message is out is held": {"{outbox_stream}", "{status} <> 1 AND EXISTS (SELECT 1 FROM {queued} q, {outbox_state} s WHERE q.{stream_id} = r.{stream_id} AND s.{seq} = q.{seq} AND s.{status} = 1)"},
	"a stream is held by one claim": {"{outbox_stream}", "EXISTS (SELECT 1 FROM {queued} q, {outbox_state} s " +
		"WHERE q.{stream_id} = r.{stream_id} AND s.{seq} = q.{seq} AND s.{status} = 1 AND s.{owner_token} <> r.{owner_token})"},
	"what has blocked a stream has failed": {"{outbox_stream}", "{status} = 2 AND NOT EXISTS (SELECT 1 FROM {queued} q, {outbox_state} s WHERE q.{stream_id} = r.{stream_id} AND s.{seq} = q.{seq} AND s.{status} = 3)"},
	"a stream that is held has a lease":    {"{outbox_stream}", "{status} = 1 AND NOT EXISTS (SELECT 1 FROM {outbox_lease} l WHERE l.{owner_token} = r.{owner_token})"},
}
