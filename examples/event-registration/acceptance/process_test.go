package acceptance_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/program"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/examples/event-registration/service"
)

// partsVariable makes the test program one of the service's programs, with the services that it names.
const partsVariable = "OUTBOX_TEST_REGISTRATION_PARTS"

func runProgram() {
	names := os.Getenv(partsVariable)
	if names == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test has gone
	}()
	var parts []service.Part
	for name := range strings.SplitSeq(names, ",") {
		parts = append(parts, service.Part(name))
	}
	program.Main(parts...)
	os.Exit(0)
}

// A process is one of the programs. It can be started again.
type process struct {
	parts string
	args  []string
	log   lockedBuffer

	mu    sync.Mutex
	url   string // empty until it listens
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
}

const allParts = "join-service,event-service,email-service"

func newProcess(t *testing.T, parts string, args ...string) *process {
	t.Helper()
	p := &process{parts: parts, args: append([]string{"-listen", "127.0.0.1:0"}, args...)}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s: %s", parts, p.complaints())
		}
	})
	return p
}

// complaints are the last errors in its log, and what requests failed of.
func (p *process) complaints() (out string) {
	var errors []string
	for line := range strings.Lines(p.log.String()) {
		if len(line) > 400 {
			line = line[:400] + "…\n"
		}
		if strings.Contains(line, "the request failed") {
			out += line
		} else if strings.Contains(line, "level=ERROR") {
			errors = append(errors, line)
		}
	}
	return out + strings.Join(errors[max(0, len(errors)-5):], "")
}

// start starts it, and tells its address once it listens. It does not wait for that.
func (p *process) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, p.args...)
	cmd.Env = append(os.Environ(), partsVariable+"="+p.parts, "TOKEN_SECRET="+string(auth.Secret))
	cmd.Stderr = &p.log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.url, p.cmd, p.stdin, p.ended = "", cmd, stdin, ended
	p.mu.Unlock()
	go func() {
		defer close(ended)
		line, _ := bufio.NewReader(stdout).ReadString('\n') // nothing if it ends before
		if words := strings.Fields(line); len(words) > 2 {
			p.mu.Lock()
			p.url = strings.TrimSuffix(words[2], ",")
			p.mu.Unlock()
		}
		_ = cmd.Wait() // how it ended is in its state
	}()
	return nil
}

func (p *process) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

func (p *process) mustStart(t *testing.T) {
	t.Helper()
	require.NoError(t, p.start())
	require.Eventually(t, func() bool { return p.address() != "" }, waitFor, tick, "%s does not listen: %s", p.parts, &p.log)
}

// kill ends it as nothing can be caught, and waits until it is gone.
func (p *process) kill() {
	p.mu.Lock()
	cmd, ended, stdin := p.cmd, p.ended, p.stdin
	p.url = ""
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // it may have ended
	<-ended
	_ = stdin.Close()
}

func get(t *testing.T, url string) string {
	t.Helper()
	a, err := sendTo(t.Context(), http.DefaultClient, url, "", request{method: http.MethodGet})
	require.NoError(t, err)
	return string(a.body)
}

// A request that has begun is answered, nothing new is taken, and the process ends well.
func TestASignalDrainsTheProcess(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	folder := t.TempDir()
	p := newProcess(t, allParts, "-folder", folder)
	p.mustStart(t)
	db, err := database.Open(folder+"/registration.db", 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	domain, err := registration.New(db, registration.Config{}, nil)
	require.NoError(t, err)

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = domain.Apply(t.Context(), tx, registration.Snapshot{EventID: "concert", Version: 1, Status: "open", Capacity: 1})
	require.NoError(t, err)
	answers := make(chan answer, 1)
	bearer, url := tokenOf(t, "event-registration", "ada"), p.address()
	go func() {
		a, err := sendTo(t.Context(), &http.Client{}, url, bearer, request{method: http.MethodPost, path: "/join/v1/events/concert/join", key: "k"})
		if err != nil {
			a.body = []byte(err.Error())
		}
		answers <- a
	}()
	require.Eventually(t, func() bool { return strings.Contains(get(t, url+"/metrics"), "http_requests_in_flight 2") }, waitFor, tick, "the join waits for the transaction")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	refused := func() bool {
		connection, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), time.Second)
		if err == nil {
			_ = connection.Close()
		}
		return err != nil
	}
	require.Eventually(t, refused, waitFor, tick, "nothing new is taken")
	require.NoError(t, tx.Commit())
	a := <-answers
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	<-p.ended
	require.True(t, p.cmd.ProcessState.Success(), "%v\n%s", p.cmd.ProcessState, &p.log)
	r, _, err := domain.My(t.Context(), "concert", "ada")
	require.NoError(t, err)
	require.Equal(t, registration.Active, r.Status)
}
