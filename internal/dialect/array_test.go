package dialect

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestArrayQuotesWhatAnArrayWouldReadOtherwise(t *testing.T) {
	var a Array
	for _, s := range []string{"plain", "", `"`, `\`, `a\"b`, "{1,2}", "NULL", " ,\n", "é😀"} {
		a.Text(s)
	}
	assert.Equal(t, `{"plain","","\"","\\","a\\\"b","{1,2}","NULL"," ,`+"\n"+`","é😀"}`, a.Value().String)
}

func TestArrayOfNumbersAndNulls(t *testing.T) {
	var a Array
	assert.False(t, a.Value().Valid)
	a.OptionalNumber(0)
	a.OptionalText("")
	assert.False(t, a.Value().Valid, "nothing but NULLs")
	a.Number(-7)
	a.Null()
	a.OptionalNumber(8)
	assert.Equal(t, "{NULL,NULL,-7,NULL,8}", a.Value().String)
}

func TestArrayHasNoNullsAtItsEnd(t *testing.T) {
	var a Array
	a.Text("first")
	a.Null()
	a.OptionalNumber(0)
	assert.Equal(t, `{"first"}`, a.Value().String)
}
