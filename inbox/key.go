package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// A Key names a message for one handler. Each part has 1 to 255 UTF-16 units, is case-sensitive, and has no white space at
// an end, which SQL Server would not tell apart.
type Key struct {
	Source    string // where the message comes from, such as a broker's queue or another service
	MessageID string // its id there
	Handler   string // who is to handle it: each handler has an entry of its own
}

func (k Key) String() string {
	return fmt.Sprintf("%q from %q for %q", k.MessageID, k.Source, k.Handler)
}

func (k Key) validate() error {
	for _, part := range []struct{ field, text string }{
		{"Key.Source", k.Source}, {"Key.MessageID", k.MessageID}, {"Key.Handler", k.Handler},
	} {
		if part.text == "" {
			return badField(part.field, "is empty")
		}
		if problem := limits.Key(part.text); problem != "" {
			return badField(part.field, "%s", problem)
		}
	}
	return nil
}

// A Hash tells the content of two messages apart.
type Hash [sha256.Size]byte

// HashOf is the SHA-256 of a payload.
func HashOf(payload []byte) Hash { return sha256.Sum256(payload) }

// String is the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

func badField(field, format string, args ...any) error {
	return &outbox.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
