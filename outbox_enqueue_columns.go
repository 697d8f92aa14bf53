package outbox

import (
	"github.com/incursa/watermill-outbox/internal/dialect"
)

// columns are the arguments that insert messages where Traits.Columns is true: the payloads, and an array for each other column.
// An operation takes as many of them as it has parameters.
func columns(rows []enqueuedMessage, payloads []byte) ([]any, error) {
	var ids, uuids, topics, topicKeys, places, sizes, headers, correlationIDs, streamKeys, dues, delays, streamIDs dialect.Array
	for _, a := range []*dialect.Array{&ids, &uuids} {
		a.Grow(40 * len(rows)) // each takes 39 bytes
	}
	for i := range rows {
		m := &rows[i]
		text, err := m.headersText()
		if err != nil {
			return nil, err
		}
		ids.Text(m.ID)
		uuids.Text(m.UUID)
		if i == 0 || m.Topic != rows[0].Topic { // NULL is the first topic again
			topics.Text(m.Topic)
			topicKeys.Number(m.TopicKey)
		} else {
			topics.Null()
			topicKeys.Null()
		}
		places.Number(int64(m.At))
		sizes.Number(int64(m.Size))
		headers.OptionalText(text)
		correlationIDs.OptionalText(m.CorrelationID)
		streamKeys.OptionalText(m.StreamKey)
		if m.DueMS == nil {
			dues.Null()
		} else {
			dues.Number(*m.DueMS)
		}
		delays.OptionalNumber(m.DelayMS)
		streamIDs.OptionalNumber(m.StreamID)
	}
	args := []any{payloads}
	for _, a := range []*dialect.Array{
		&ids, &uuids, &topics, &topicKeys, &places, &sizes, &headers, &correlationIDs, &streamKeys, &dues, &delays, &streamIDs,
	} {
		args = append(args, a.Value())
	}
	return append(args, rows[0].LogOnly), nil
}
