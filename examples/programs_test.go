package examples_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

// patience is how long a program may take. All of them take a second or two.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range []func() error{testbroker.Close, skipped.Report, func() error { return os.RemoveAll(binaries) }} {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// binaries is the folder of the programs, once they are built.
var binaries string

// build compiles all examples at once, as their readers' go run does one by one.
var build = sync.OnceValues(func() (string, error) {
	names, err := examples()
	if err != nil {
		return "", err
	}
	if binaries, err = os.MkdirTemp("", "examples-"); err != nil {
		return "", err
	}
	args := []string{"build", "-ldflags=-s -w", "-o", binaries + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the examples: %w\n%s", err, out)
	}
	return binaries, nil
})

// examples are the folders of the programs to copy: all but bench, which is a tool.
func examples() (names []string, err error) {
	files, err := os.ReadDir(".")
	for _, file := range files {
		if file.IsDir() && file.Name() != "bench" {
			names = append(names, file.Name())
		}
	}
	return names, err
}

// A result is what a program has printed, and its exit code.
type result struct {
	out, errOut string
	code        int
}

// run runs an example, with no settings in its environment, and checks that it leaves no file behind.
func run(t *testing.T, name string, args ...string) result {
	t.Helper()
	folder, err := build()
	require.NoError(t, err)
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	temporary := t.TempDir()
	cmd := exec.CommandContext(ctx, filepath.Join(folder, name), args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "TMP="+temporary, "AMQP_URL=", "KAFKA_BROKERS=", "SQLSERVER_DSN=")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError), "%s %s", name, strings.Join(args, " "))
	}
	require.NoError(t, ctx.Err(), "%s has not ended within %v:\n%s%s", name, patience, &out, &errOut)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left, "%s should leave nothing behind", name)
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}
