package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArrayLiterals(t *testing.T) {
	t.Parallel()
	var a array
	require.Equal(t, "{}", a.literal())
	a.text(`say "a\b"`)
	a.optional("")
	a.optional("NULL") // a word, not the value: it is quoted
	a.text("")
	a.text("{x,y}")
	require.Equal(t, `{"say \"a\\b\"",NULL,"NULL","","{x,y}"}`, a.literal())

	var n array
	n.number(-1)
	n.null()
	require.Equal(t, `{-1,NULL}`, n.literal())
}
