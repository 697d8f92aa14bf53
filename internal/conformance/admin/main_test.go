package admin_test

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
