// Package stagetest is what the tests of the stories share.
package stagetest

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Run is a program's main, with what it needs given to it; it returns the exit code.
type Run func(ctx context.Context, args []string, out, errOut io.Writer) int

// OnEveryDatabase runs test with the arguments for a temporary file, which it leaves nothing of, for a file, and for each server
// that there is.
func OnEveryDatabase(t *testing.T, test func(t *testing.T, args ...string)) {
	t.Helper()
	t.Run("temporary", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		test(t)
		RequireEmpty(t, os.TempDir())
	})
	t.Run("file", func(t *testing.T) {
		test(t, "-dsn", "file:"+filepath.ToSlash(filepath.Join(t.TempDir(), "story.db")))
	})
	for _, name := range []string{"OUTBOX_TEST_POSTGRES_DSN", "OUTBOX_TEST_SQLSERVER_DSN"} {
		if dsn := os.Getenv(name); dsn != "" { // scripts/with-databases names those that are missing
			t.Run(name, func(t *testing.T) { test(t, "-dsn", dsn) })
		}
	}
}

// RequireInterruptible stops a program when it prints a text: it says so, by its name, and leaves nothing behind.
func RequireInterruptible(t *testing.T, run Run, name, text string) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut bytes.Buffer
	code := run(ctx, nil, &trigger{&out, text, cancel}, &errOut)
	require.Equal(t, 130, code, "%s%s", &out, &errOut)
	require.Contains(t, errOut.String(), name+": stopped: ")
	RequireEmpty(t, os.TempDir())
}

// RequireRefused gives a program arguments that it does not take: it says what is wrong and prints nothing else.
func RequireRefused(t *testing.T, run Run, code int, want string, args ...string) {
	t.Helper()
	var out, errOut bytes.Buffer
	require.Equal(t, code, run(t.Context(), args, &out, &errOut))
	require.Empty(t, out.String())
	require.Contains(t, errOut.String(), want)
}

// RequireBadDSNsRefused does so with databases and flags that are wrong for every program with -dsn.
func RequireBadDSNsRefused(t *testing.T, run Run) {
	t.Helper()
	RequireRefused(t, run, 1, `but "mysql"`, "-dsn", "mysql://root@localhost/x")
	RequireRefused(t, run, 1, "cannot connect to PostgreSQL", "-dsn", "postgres://localhost:1/x")
	RequireRefused(t, run, 2, "-what", "-what")
	RequireRefused(t, run, 2, `"what" is no flag`, "what")
}

// RequireEmpty looks into a folder.
func RequireEmpty(t *testing.T, folder string) {
	t.Helper()
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A trigger pulls when a text is written.
type trigger struct {
	*bytes.Buffer
	text string
	pull func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.text)) {
		w.pull()
	}
	return w.Buffer.Write(p)
}
