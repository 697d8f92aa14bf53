// Package testprocess has a test program start itself again, as a process that a test can kill.
package testprocess

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Process is the program that was started again, as the test sees it.
type Process struct {
	Stdin io.WriteCloser // the job is to end with it, however it comes

	cmd *exec.Cmd
}

// A Line is what a process has written to its standard output, or empty when it has ended.
type Line struct {
	From *Process
	Text string
}

// Start starts the program with a job, which the variable carries, and sends what it writes to a channel, which may be that of
// others, too. It ends with the test at the latest.
func Start(t *testing.T, variable string, job any, to chan<- Line) *Process {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(job)
	require.NoError(t, err)
	p := &Process{cmd: exec.CommandContext(t.Context(), program)}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.Stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	ctx, ended := t.Context(), make(chan struct{}) // the context ends before the test waits
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		p.listen(ctx, stdout, to)
	}()
	return p
}

func (p *Process) listen(ctx context.Context, stdout io.Reader, to chan<- Line) {
	tell := func(text string) {
		select {
		case to <- Line{p, text}:
		case <-ctx.Done(): // nobody listens any more
		}
	}
	lines := bufio.NewReader(stdout)
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			break // what is before it is half a line, of one that was killed
		}
		tell(strings.TrimSuffix(text, "\n"))
	}
	_ = p.cmd.Wait() // how it ended is in State
	tell("")
}

// Kill ends it as nothing can be caught. Its last lines may still come, and then the empty one.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// State is how it has ended.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Run is the process itself, for TestMain: if the variable is set, it does the job and exits.
func Run[Job any](variable string, do func(Job) error) {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var job Job
	err := json.Unmarshal([]byte(text), &job)
	if err == nil {
		err = do(job)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, variable+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}
