package amqp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process is this test program, started again to be killed, as the test sees it.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	news  chan string // closed when it has ended
}

// startProcess starts the program as what the variable makes of it. It ends with the test at the latest.
func startProcess(t *testing.T, variable string, job any) *process {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(job)
	require.NoError(t, err)
	p := &process{cmd: exec.CommandContext(t.Context(), program), news: make(chan string, 100_000)}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		defer close(p.news)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.news <- lines.Text()
		}
		_ = p.cmd.Wait() // how it ended is in its ProcessState
	}()
	return p
}

// runProcess is the process: if the variable says that this is one, it does its job and exits.
func runProcess[Job any](variable string, do func(Job) error) {
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
