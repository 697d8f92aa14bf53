package prometheus_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/incursa/watermill-outbox/internal/skipped"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := skipped.Report(); err != nil && code == 0 {
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}
