package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test program be what the story starts: its dispatchers.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == dispatcherFlag {
		main()
	}
	os.Exit(m.Run())
}

func TestStory(t *testing.T) {
	var out, errOut bytes.Buffer
	require.Zero(t, run(t.Context(), nil, &out, &errOut), "%s%s", &out, &errOut)
	require.Empty(t, errOut.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Equal(t, "lost 0, doubled 0", lines[len(lines)-1], out.String())
	for _, want := range []string{
		"dispatcher 1 is killed in the transaction", "billing has 30 of 60 orders", "picking, in the warehouse's database    100 of 100 orders, in order",
		"acme.audit                               50 of 50 orders, in order", "summary                                 100 of 100 orders",
	} {
		require.Contains(t, out.String(), want)
	}
}

func TestBadInput(t *testing.T) {
	var errOut bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"-what"}, io.Discard, &errOut))
	require.Contains(t, errOut.String(), "-what")
}

// An order that is missing, doubled or out of order ends the story with an error.
func TestWhatIsWrongIsSeen(t *testing.T) {
	want := []string{"a", "b", "c"}
	for last, got := range map[string][]string{
		"lost 1, doubled 0": {"a", "c"}, "lost 0, doubled 1": {"a", "b", "b", "c"}, "lost 0, doubled 0": {"a", "c", "b"},
	} {
		var out bytes.Buffer
		require.Error(t, newScreen(&out).print([]count{compare("x", want, got)}))
		require.True(t, strings.HasSuffix(out.String(), last+"\n"), out.String())
	}
	require.NoError(t, newScreen(io.Discard).print([]count{compare("x", want, want)}))
}
