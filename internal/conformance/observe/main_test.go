package observe_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers"
	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

func TestMain(m *testing.M) {
	testprocess.Run(workerVariable, worker.run)
	code := m.Run()
	for _, end := range []func() error{testbroker.Close, skipped.Report, func() error { return goleak.Find() }} {
		if err := end(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
