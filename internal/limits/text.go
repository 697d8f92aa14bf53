// Package limits says which texts every database stores and compares in the same way, and how long a statement may take.
package limits

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxText is the longest topic, uuid, correlation id, stream key or grouping key, in UTF-16 units, as SQL Server counts.
const MaxText = 255

// Key says what is wrong with text that is compared, or returns nothing. SQL Server ignores trailing white space, so it is
// refused everywhere.
func Key(text string) (problem string) {
	if strings.TrimFunc(text, unicode.IsSpace) != text {
		return "has white space at an end, which databases compare differently; trim it"
	}
	return Text(text)
}

// Text says what is wrong with text of limited length.
func Text(text string) (problem string) {
	if problem := AnyLength(text); problem != "" {
		return problem
	}
	if len(text) > MaxText && UTF16(text) > MaxText {
		return fmt.Sprintf("is %d UTF-16 units long; the limit is %d", UTF16(text), MaxText)
	}
	return ""
}

// AnyLength says what is wrong with text that may be long.
func AnyLength(text string) (problem string) {
	switch {
	case !utf8.ValidString(text):
		return "is not valid UTF-8"
	case strings.IndexByte(text, 0) >= 0:
		return "contains a NUL byte, which not every database can store"
	default:
		return ""
	}
}

// UTF16 is the length of text in UTF-16 units.
func UTF16(text string) int {
	n := 0
	for _, r := range text {
		n += utf16.RuneLen(r)
	}
	return n
}

// MaxInFlight bounds SubscriberConfig.MaxInFlight: each topic has a queue of that size.
const MaxInFlight = 100_000
