package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/rabbitmq"
	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range []func() error{testbroker.Close, skipped.Report} {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// The program is run as its readers do. In this process the race detector would see how watermill-amqp 2.1.3 connects
// again: it writes its connection while its subscriber reads it.
func TestLong_AllOrdersArriveThoughTheBrokerIsStopped(t *testing.T) {
	testbroker.URL(t) // there is to be one for tests
	if testing.Short() || !rabbitmq.Installed() {
		testbroker.Node(t) // says what is missing
	}
	program := filepath.Join(t.TempDir(), "forward-to-rabbitmq")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.CommandContext(t.Context(), program, "-orders", "200").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, line := range []string{
		"the broker is stopped", "the forwarder's breaker is open", "the broker is started again", "the forwarder's breaker is closed",
		"placed 200, arrived 200, lost 0, ", "attempts spent on outages 0",
	} {
		require.Contains(t, string(out), line)
	}
}

func TestABrokerOfSomebodyElseIsNotStopped(t *testing.T) {
	url := testbroker.URL(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), url, 50, &out), out.String())
	require.NotContains(t, out.String(), "stopped")
	require.Contains(t, out.String(), "placed 50, arrived 50, lost 0")
}
