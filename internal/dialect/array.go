package dialect

import (
	"database/sql"
	"strconv"
	"strings"
)

// An Array is the text of a PostgreSQL array, which every driver can send, without the NULLs at its end: unnest beside longer
// arrays adds them again. The zero value is empty.
type Array struct {
	text  strings.Builder
	nulls int // since the last value
}

// Grow makes room for n bytes more, at once.
func (a *Array) Grow(n int) { a.text.Grow(n) }

var escaper = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// Text appends a text, quoted.
func (a *Array) Text(s string) {
	a.begin()
	a.text.WriteByte('"')
	if strings.IndexByte(s, '"') < 0 && strings.IndexByte(s, '\\') < 0 { // as usual, and soon seen
		a.text.WriteString(s)
	} else {
		_, _ = escaper.WriteString(&a.text, s) // a strings.Builder returns no error
	}
	a.text.WriteByte('"')
}

// Number appends a number.
func (a *Array) Number(n int64) {
	a.begin()
	var digits [20]byte
	a.text.Write(strconv.AppendInt(digits[:0], n, 10))
}

// Null appends a NULL.
func (a *Array) Null() { a.nulls++ }

// OptionalText appends a text, or a NULL for an empty one.
func (a *Array) OptionalText(s string) {
	if s == "" {
		a.Null()
	} else {
		a.Text(s)
	}
}

// OptionalNumber appends a number, or a NULL for zero.
func (a *Array) OptionalNumber(n int64) {
	if n == 0 {
		a.Null()
	} else {
		a.Number(n)
	}
}

// begin opens the array, or a further element.
func (a *Array) begin() {
	if a.text.Len() > 0 {
		a.text.WriteByte(',')
	} else {
		a.text.WriteByte('{')
	}
	for ; a.nulls > 0; a.nulls-- {
		a.text.WriteString("NULL,")
	}
}

// Value closes the array and returns the argument: NULL for an array without values, which costs the server nothing.
func (a *Array) Value() sql.NullString {
	if a.text.Len() == 0 {
		return sql.NullString{}
	}
	a.text.WriteByte('}')
	return sql.NullString{String: a.text.String(), Valid: true}
}
