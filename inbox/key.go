package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// A Key identifies a message for one handler. Each part has 1 to 255 UTF-16 units, is case-sensitive, and neither begins nor
// ends with white space, which SQL Server would ignore in comparisons.
type Key struct {
	Source    string // where the message comes from, such as a broker's queue or another service
	MessageID string // its id there
	Handler   string // which handler it is for: each handler has its own entry
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

// A Hash tells different contents apart.
type Hash [sha256.Size]byte

// HashOf is the SHA-256 of a payload.
func HashOf(payload []byte) Hash { return sha256.Sum256(payload) }

// String is the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

func badField(field, format string, args ...any) error {
	return &outbox.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
