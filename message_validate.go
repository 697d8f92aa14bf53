package outbox

import (
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/incursa/watermill-outbox/internal/limits"
)

// The years that every database can store.
const (
	firstYear = 1
	lastYear  = 9999
)

func (m *Message) validate() error {
	if m.Topic == "" {
		return badField("Topic", "is empty; every message needs a topic")
	}
	if err := validateKey("Topic", m.Topic); err != nil {
		return err
	}
	if err := validateText("UUID", m.UUID); err != nil {
		return err
	}
	if err := validateText("CorrelationID", m.CorrelationID); err != nil {
		return err
	}
	if err := validateKey("StreamKey", m.StreamKey); err != nil {
		return err
	}
	for key, value := range m.Headers {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return badField("Headers", "header %q is not valid UTF-8; put bytes into the payload, or encode them", key)
		}
	}
	switch {
	case m.Delay < 0:
		return badField("Delay", "is negative; leave it 0 for a message that is due now")
	case m.Delay > 0 && !m.DueAt.IsZero():
		return badField("Delay", "and DueAt are both set; set one of them")
	case !m.DueAt.IsZero() && (m.DueAt.UTC().Year() < firstYear || m.DueAt.UTC().Year() > lastYear):
		return badField("DueAt", "is not in the years %d to %d", firstYear, lastYear)
	case time.Now().Add(m.Delay).UTC().Year() > lastYear:
		return badField("Delay", "ends after the year %d", lastYear)
	}
	return nil
}

// validateKey checks text that the database compares.
func validateKey(field, text string) error { return bad(field, limits.Key(text)) }

func validateText(field, text string) error { return bad(field, limits.Text(text)) }

// bad is the error of a problem, or nil if there is none.
func bad(field, problem string) error {
	if problem == "" {
		return nil
	}
	return &FieldError{Field: field, Reason: problem}
}

// setListLimit checks how many rows a list returns, which defaults to 100.
func setListLimit(field string, limit *int) error {
	if setDefault(limit, 100); *limit < 1 || *limit > maxBatch {
		return badField(field, "%d is not between 1 and %d", *limit, maxBatch)
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
