package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/incursa/watermill-outbox/internal/field"
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
			return field.Bad(part.field, "is empty")
		}
		if err := field.Key(part.field, part.text); err != nil {
			return err
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
