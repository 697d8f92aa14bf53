package examples_test

import (
	"bytes"
	"context"
	"errors"
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
	for _, end := range []func() error{testbroker.Close, skipped.Report, func() error { return os.RemoveAll(scratch) }} {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// scratch is the folder of a module outside of the tree, once there is one.
var scratch string

// build copies all examples into a module of their own, as their readers do, and compiles them there. The versions are those
// of go.mod, so that nothing is fetched that this module does not use itself; of this repository it is what is here.
var build = sync.OnceValues(func() (binaries string, err error) {
	names, err := examples()
	if err != nil {
		return "", err
	}
	if scratch, err = os.MkdirTemp("", "examples-"); err != nil {
		return "", err
	}
	root, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	copies := map[string]string{"go.sum": "go.sum"}
	for _, name := range names {
		copies[filepath.Join(name, "main.go")] = filepath.Join(name, "main.go")
	}
	for to, from := range copies {
		if err := copyFile(filepath.Join(scratch, to), from); err != nil {
			return "", err
		}
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		return "", err
	}
	mod = bytes.ReplaceAll(mod, []byte("=> .."), []byte("=> "+filepath.ToSlash(root)))
	if err := os.WriteFile(filepath.Join(scratch, "go.mod"), mod, 0o600); err != nil {
		return "", err
	}
	binaries = filepath.Join(scratch, "bin") + string(filepath.Separator)
	return binaries, errors.Join(
		goCommand("mod", "edit", "-module=example.com/shop"),
		goCommand("build", "-mod=mod", "-ldflags=-s -w", "-o", binaries, "./..."))
})

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

func goCommand(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = scratch
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// examples are the folders of the programs to copy: all but bench, which is a tool, and event-registration, which is a whole
// service in a module of its own, with tests of its own.
func examples() (names []string, err error) {
	files, err := os.ReadDir(".")
	for _, file := range files {
		if file.IsDir() && file.Name() != "bench" && file.Name() != "event-registration" {
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
