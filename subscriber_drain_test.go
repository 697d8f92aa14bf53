package outbox

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

type closer func() error

func (c closer) Close() error { return c() }

// A closer that is nil, as of a part that was not configured, ended the process instead of what else is drained.
func TestTrap_DrainRefusesACloserThatIsNil(t *testing.T) {
	for name, missing := range map[string]io.Closer{"<nil>": nil, "*outbox.Subscriber": (*Subscriber)(nil)} {
		closed := false
		err := Drain(t.Context(), nil, missing, closer(func() error {
			closed = true
			return nil
		}))
		require.EqualError(t, err, "outbox: drain: closer 1, a "+name+": is nil; pass only what there is")
		require.True(t, closed)
	}
}
