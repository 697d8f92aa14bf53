package outbox

import (
	"errors"
	"maps"
	"time"

	"github.com/incursa/watermill-outbox/internal/field"
)

// headerExpiresAt carries Message.ExpiresAt.
const headerExpiresAt = "outbox_expires_at"

// expiry reads the header; without it, the time is zero.
func expiry(headers map[string]string) (time.Time, error) {
	text := headers[headerExpiresAt]
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, field.Bad("Headers["+headerExpiresAt+"]", "is not an RFC 3339 time; set Message.ExpiresAt instead")
	}
	return at.UTC(), nil
}

// validateExpiry checks the time, or the header that stands for it. The header is not compared with the due time: it may have
// come with a message from elsewhere, and a refusal would stop whatever passes the message on.
func (m *Message) validateExpiry() error {
	if m.ExpiresAt.IsZero() {
		_, err := expiry(m.Headers)
		return err
	}
	if year := m.ExpiresAt.UTC().Year(); year < firstYear || year > lastYear {
		return field.Bad("ExpiresAt", "is not in the years %d to %d", firstYear, lastYear)
	}
	if !m.DueAt.IsZero() && !m.ExpiresAt.After(m.DueAt) {
		return field.Bad("ExpiresAt", "is not after DueAt, so the message would never be handled")
	}
	if m.Delay > 0 && !m.ExpiresAt.After(time.Now().Add(m.Delay)) {
		return field.Bad("ExpiresAt", "is not after Delay has passed, so the message would never be handled")
	}
	return nil
}

// storedHeaders are the headers with ExpiresAt among them.
func (m *Message) storedHeaders() map[string]string {
	if m.ExpiresAt.IsZero() {
		return m.Headers
	}
	headers := make(map[string]string, len(m.Headers)+1)
	maps.Copy(headers, m.Headers)
	headers[headerExpiresAt] = m.ExpiresAt.UTC().Format(time.RFC3339Nano)
	return headers
}

// deadline is when the message expires, by this process's monotonic clock: no later than by the database's, which said when
// it was claimed, because the claim had been sent before.
func (c *Claimed) deadline(sent time.Time) time.Time {
	if c.ExpiresAt.IsZero() {
		return time.Time{}
	}
	return sent.Add(c.ExpiresAt.Sub(c.ClaimedAt))
}

// errExpired is the same for all messages, so that dead letters are counted together; the header says when.
var errExpired = errors.New("expired before it was handled")

// expired returns why the message must not be handled any more, or nil.
func (d *Delivery) expired() error {
	if d.deadline.IsZero() || time.Now().Before(d.deadline) {
		return nil
	}
	return errExpired
}
