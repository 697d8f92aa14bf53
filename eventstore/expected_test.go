package eventstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/eventstore"
)

func TestAVersionErrorSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		expected eventstore.Expected
		actual   int64
		text     string
	}{
		{eventstore.StreamExists, 0, `the stream "z" has no events, and some were expected`},
		{eventstore.Exactly(3), 0, `the stream "z" has no events, and version 3 was expected`},
		{eventstore.Exactly(3), 2, `the stream "z" is at version 2, and version 3 was expected`},
		{eventstore.Exactly(1), 2, `the stream "z" is at version 2, and version 1 was expected; read what is new, decide again, append that`},
		{eventstore.NoStream, 2, `the stream "z" is at version 2, and was expected to be new; read what is there, decide again, append that`},
	} {
		err := &eventstore.VersionError{Stream: "z", Expected: c.expected, Actual: c.actual}
		require.EqualError(t, err, "eventstore: "+c.text)
	}
}
