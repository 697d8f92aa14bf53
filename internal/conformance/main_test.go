package conformance

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain ends the run with the list of what did not run, and fails it if a goroutine is left over.
func TestMain(m *testing.M) {
	runKillWorker()
	code := m.Run()
	if err := skipped.report(os.Getenv("OUTBOX_TEST_SKIPPED")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left over:", err)
			code = 1
		}
	}
	os.Exit(code)
}
