package outbox

import (
	"strconv"
	"strings"
)

// columns are messages as the parameters of PostgreSQL's opEnqueue: an array a column. They are array literals, which every
// driver can send.
func columns(rows []enqueuedMessage, payloads []byte) ([]any, error) {
	var ids, uuids, topics, keys, offsets, sizes, headers, correlations, streams, due, delays array
	for i := range rows {
		m := &rows[i]
		text, err := m.headersText()
		if err != nil {
			return nil, err
		}
		ids.text(m.ID)
		uuids.text(m.UUID)
		topics.text(m.Topic)
		keys.number(m.TopicKey)
		offsets.number(int64(m.At))
		sizes.number(int64(m.Size))
		headers.optional(text)
		correlations.optional(m.CorrelationID)
		streams.optional(m.StreamKey)
		if m.DueMS != nil {
			due.number(*m.DueMS)
		} else {
			due.null()
		}
		if m.DelayMS != 0 {
			delays.number(m.DelayMS)
		} else {
			delays.null()
		}
	}
	return []any{ids.literal(), uuids.literal(), topics.literal(), keys.literal(), payloads, offsets.literal(), sizes.literal(),
		headers.literal(), correlations.literal(), streams.literal(), due.literal(), delays.literal()}, nil
}

// An array is a literal of one in the making, without its braces.
type array struct{ b strings.Builder }

func (a *array) literal() string { return "{" + a.b.String() + "}" }

func (a *array) separate() {
	if a.b.Len() > 0 {
		a.b.WriteByte(',')
	}
}

func (a *array) null() {
	a.separate()
	a.b.WriteString("NULL")
}

func (a *array) number(n int64) {
	a.separate()
	a.b.WriteString(strconv.FormatInt(n, 10))
}

func (a *array) text(s string) {
	a.separate()
	a.b.WriteByte('"')
	for {
		at := strings.IndexAny(s, `"\`)
		if at < 0 {
			break
		}
		a.b.WriteString(s[:at])
		a.b.WriteByte('\\')
		a.b.WriteByte(s[at])
		s = s[at+1:]
	}
	a.b.WriteString(s)
	a.b.WriteByte('"')
}

func (a *array) optional(s string) {
	if s == "" {
		a.null()
	} else {
		a.text(s)
	}
}
