package dialect

import (
	"database/sql"
	"strconv"
)

// An Array is the text of a PostgreSQL array, which every driver can send. The zero value is empty.
type Array struct {
	text  []byte
	some  bool
	nulls int // at the beginning, while there is nothing else
}

// Text appends a text, quoted.
func (a *Array) Text(s string) {
	a.begin()
	a.text = append(a.text, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			a.text = append(a.text, '\\')
		}
		a.text = append(a.text, s[i])
	}
	a.text = append(a.text, '"')
}

// Number appends a number.
func (a *Array) Number(n int64) {
	a.begin()
	a.text = strconv.AppendInt(a.text, n, 10)
}

// Null appends a NULL.
func (a *Array) Null() {
	if !a.some {
		a.nulls++
		return
	}
	a.text = append(a.text, ",NULL"...)
}

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
	if a.some {
		a.text = append(a.text, ',')
		return
	}
	a.some = true
	a.text = append(a.text, '{')
	for range a.nulls {
		a.text = append(a.text, "NULL,"...)
	}
}

// Value is the argument: NULL for an array without values, which costs the server nothing.
func (a *Array) Value() sql.NullString {
	if !a.some {
		return sql.NullString{}
	}
	return sql.NullString{String: string(a.text) + "}", Valid: true}
}
