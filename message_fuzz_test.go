package outbox

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/engine"
)

// Headers that are accepted come back as they were.
func FuzzHeaders(f *testing.F) {
	f.Add("key", "value")
	f.Add("", "a\x00b")
	f.Add("<&>", "\u2028 \U0001F642 \\ \" '")
	f.Add("bytes", "\xff")
	f.Fuzz(func(t *testing.T, key, value string) {
		headers := map[string]string{key: value}
		if err := (&Message{Topic: "orders", Headers: headers}).validate(); err != nil {
			var field *FieldError
			require.ErrorAs(t, err, &field)
			require.False(t, utf8.ValidString(key) && utf8.ValidString(value), err)
			return
		}
		text, err := engine.Encode(headers)
		require.NoError(t, err)
		require.NotContains(t, text, "\x00")
		back, err := decodeHeaders(text)
		require.NoError(t, err)
		require.Equal(t, headers, back)
	})
}

// The text of any error can be stored, and only its end is ever cut off.
func FuzzErrorText(f *testing.F) {
	f.Add("connection refused")
	f.Add("a\x00b\xffc")
	f.Add(strings.Repeat("\U0001F642", maxError))
	f.Fuzz(func(t *testing.T, text string) {
		stored := storableError(errorText(text))
		require.True(t, utf8.ValidString(stored))
		require.NotContains(t, stored, "\x00")
		require.LessOrEqual(t, utf16Length(stored), maxError)
		if utf8.ValidString(text) && !strings.Contains(text, "\x00") {
			require.True(t, strings.HasPrefix(text, strings.TrimSuffix(stored, "…")))
		}
	})
}

type errorText string

func (e errorText) Error() string { return string(e) }

// A topic that is accepted can be stored and compared in every database.
func FuzzKeys(f *testing.F) {
	f.Add("orders")
	f.Add(" orders")
	f.Add(strings.Repeat("x", 256))
	f.Add("a\x00b")
	f.Fuzz(func(t *testing.T, key string) {
		err := (&Message{Topic: key, StreamKey: key}).validate()
		if err == nil {
			require.NotEmpty(t, key)
			require.Equal(t, strings.TrimSpace(key), key)
			require.LessOrEqual(t, utf16Length(key), 255)
			require.True(t, utf8.ValidString(key))
			require.NotContains(t, key, "\x00")
			return
		}
		var field *FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "Topic", field.Field)
	})
}
