package outbox

import (
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// The years that every database can store.
const (
	firstYear = 1
	lastYear  = 9999
)

func (m *Message) validate() error {
	if m.Topic == "" {
		return field.Bad("Topic", "is empty; every message needs a topic")
	}
	if err := field.Key("Topic", m.Topic); err != nil {
		return err
	}
	if err := field.Text("UUID", m.UUID); err != nil {
		return err
	}
	if err := field.Text("CorrelationID", m.CorrelationID); err != nil {
		return err
	}
	if err := field.Key("StreamKey", m.StreamKey); err != nil {
		return err
	}
	for key, value := range m.Headers {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return field.Bad("Headers", "header %q is not valid UTF-8; put bytes into the payload, or encode them", key)
		}
	}
	if err := m.validateExpiry(); err != nil {
		return err
	}
	switch {
	case m.Delay < 0:
		return field.Bad("Delay", "is negative; leave it 0 for a message that is due now")
	case m.Delay > 0 && !m.DueAt.IsZero():
		return field.Bad("Delay", "and DueAt are both set; set one of them")
	case !m.DueAt.IsZero() && (m.DueAt.UTC().Year() < firstYear || m.DueAt.UTC().Year() > lastYear):
		return field.Bad("DueAt", "is not in the years %d to %d", firstYear, lastYear)
	case m.Delay > 0 && time.Now().Add(m.Delay).UTC().Year() > lastYear:
		return field.Bad("Delay", "ends after the year %d", lastYear)
	}
	return nil
}

// setListLimit checks how many rows a list returns, which defaults to 100.
func setListLimit(name string, limit *int) error {
	if field.Default(limit, 100); *limit < 1 || *limit > maxBatch {
		return field.Bad(name, "%d is not between 1 and %d", *limit, maxBatch)
	}
	return nil
}

func utf16Length(text string) int { return limits.UTF16(text) }

// maxError is the longest LastError, in UTF-16 units.
const maxError = 4000

// storableError is the text of an error in a form that every database can store; it cuts off the end of a very long one.
func storableError(err error) string {
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	length := 0
	for i, r := range text {
		if length += utf16.RuneLen(r); length >= maxError {
			return text[:i] + "…"
		}
	}
	return text
}
