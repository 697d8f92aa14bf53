package console_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers"
	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

func TestMain(m *testing.M) {
	testprocess.Run(claimsVariable, claimsJob.run)
	code := m.Run()
	for _, err := range []error{skipped.Report(), goleak.Find()} {
		if err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
