// Package rabbitmq runs a RabbitMQ of its own, from the binaries on this machine, for tests and examples.
package rabbitmq

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed node.sh
var script string

// ErrNotInstalled means that there are no binaries of RabbitMQ on this machine.
var ErrNotInstalled = errors.New("RabbitMQ is not installed on this machine (Debian: apt-get install rabbitmq-server)")

// Installed reports whether a node can be started.
func Installed() bool {
	cmd := exec.Command("bash", "-c", script)
	cmd.Env = append(os.Environ(), "NODE_FIND=1")
	return cmd.Run() == nil
}

// stopTimeout is more than node.sh takes.
const stopTimeout = time.Minute

// A Node is a RabbitMQ on ports of its own, with its files in a folder of its own. It ends with this process, however
// that ends.
type Node struct {
	dir      string
	settings []string

	mu  sync.Mutex
	url string
	cmd *exec.Cmd
	in  io.Closer     // the node runs until it is closed
	log *bytes.Buffer // complete once cmd has ended
}

// New returns a node that has not been started. Settings are lines of rabbitmq.conf.
func New(settings ...string) (*Node, error) {
	dir, err := os.MkdirTemp("", "outbox-rabbitmq-")
	if err != nil {
		return nil, err
	}
	return &Node{dir: dir, settings: settings}, nil
}

// Start starts the node and waits until it takes connections. After Stop it is the same node: URL and durable messages
// are those of before.
func (n *Node) Start(ctx context.Context) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return errors.New("the RabbitMQ node is running")
	}
	cmd := exec.Command("bash", "-c", script, "node.sh", n.dir)
	cmd.Env = append(os.Environ(), "NODE_SETTINGS="+strings.Join(n.settings, "\n"))
	log := new(bytes.Buffer)
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start RabbitMQ: %w", err)
	}
	giveUp := context.AfterFunc(ctx, func() { _ = in.Close() })
	url, err := bufio.NewReader(out).ReadString('\n')
	if !giveUp() || err != nil {
		_ = in.Close()
		_ = cmd.Wait() // its output says more
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case cmd.ProcessState.ExitCode() == 3:
			return ErrNotInstalled
		}
		return fmt.Errorf("start RabbitMQ: %s", bytes.TrimSpace(log.Bytes()))
	}
	n.cmd, n.in, n.log, n.url = cmd, in, log, strings.TrimSpace(url)
	return nil
}

// URL is where the node is, once it has been started, also while it is stopped.
func (n *Node) URL() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.url
}

// Stop shuts the node down as a restart of its service would, and waits until it is gone. A node that has ended by itself
// is an error that says what it wrote.
func (n *Node) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return nil
	}
	cmd := n.cmd
	n.cmd = nil
	late := time.AfterFunc(stopTimeout, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // it has ended, or ends now
	defer late.Stop()
	if err := errors.Join(n.in.Close(), cmd.Wait()); err != nil {
		return fmt.Errorf("stop RabbitMQ: %w: %s", err, bytes.TrimSpace(n.log.Bytes()))
	}
	return nil
}

// Close stops the node and deletes what it has stored.
func (n *Node) Close() error { return errors.Join(n.Stop(), os.RemoveAll(n.dir)) }
