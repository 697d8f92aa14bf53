// Package testserver gives a test a PostgreSQL or a Redis of its own, from the binaries on this machine, to stop and start.
//
//	OUTBOX_TEST_ONLY       a list: where it does not name the server, there is none
//	OUTBOX_TEST_REQUIRE    a list: where it names a server, a test that finds none fails
//
// A test that is left out is listed by package skipped.
package testserver

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/incursa/watermill-outbox/internal/skipped"
)

//go:embed serve.sh
var script string

const startTimeout = time.Minute

// A Server is a process on a loopback port of its own, which it keeps when it is started again. It ends with the test, and with
// the test's process, however that ends.
type Server struct {
	Addr string

	signal  string // that stops it
	command []string

	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.Closer // it runs until this is closed
	log bytes.Buffer
}

// FreePort returns a free port on 127.0.0.1, and its address, for a server that starts later or restarts. It is below the range of
// ephemeral ports, so the system assigns it to no one else in the meantime.
func FreePort(t testing.TB) (port int, address string) {
	t.Helper()
	var err error
	for range 100 {
		port = 20_000 + rand.IntN(10_000)
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		var listener net.Listener
		if listener, err = net.Listen("tcp", address); err == nil {
			if err = listener.Close(); err == nil {
				return port, address
			}
		}
	}
	t.Fatalf("no port is free: %v", err)
	return 0, ""
}

// begin starts a server for a test. The command gets its port.
func begin(t testing.TB, signal string, command func(port string) []string) *Server {
	t.Helper()
	port, address := FreePort(t)
	s := &Server{Addr: address, signal: signal, command: command(strconv.Itoa(port))}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start starts the server, and waits until it takes connections.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return errors.New("the server is running")
	}
	s.log.Reset()
	cmd := exec.Command("bash", append([]string{"-c", script, "serve.sh", s.signal}, s.command...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = os.TempDir(), &s.log, &s.log
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.command[0], err)
	}
	s.cmd, s.in = cmd, in
	for deadline := time.Now().Add(startTimeout); ; {
		connection, err := net.Dial("tcp", s.Addr)
		if err == nil {
			return connection.Close()
		}
		if time.Now().After(deadline) {
			err := s.stop()
			return errors.Join(fmt.Errorf("%s does not listen: %s", s.command[0], bytes.TrimSpace(s.log.Bytes())), err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Stop ends the server at once, as a crash would, and waits until it is gone.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop()
}

func (s *Server) stop() error {
	if s.cmd == nil {
		return nil
	}
	cmd := s.cmd
	s.cmd = nil
	return errors.Join(s.in.Close(), cmd.Wait())
}

// without fails the test if the server is required, and otherwise skips it.
func without(t testing.TB, name, why string) {
	t.Helper()
	if named("OUTBOX_TEST_REQUIRE", name) {
		t.Fatalf("OUTBOX_TEST_REQUIRE names %s: %s", name, why)
	}
	skipped.Add(t.Name(), name, why)
	t.Skipf("needs %s: %s", name, why)
}

// wanted skips the test if the variables leave the server out.
func wanted(t testing.TB, name string) {
	t.Helper()
	if os.Getenv("OUTBOX_TEST_ONLY") != "" && !named("OUTBOX_TEST_ONLY", name) {
		without(t, name, "OUTBOX_TEST_ONLY leaves it out")
	}
	if testing.Short() {
		without(t, name, "-short starts nothing")
	}
}

func named(variable, name string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(variable), ","), func(one string) bool { return strings.TrimSpace(one) == name })
}
