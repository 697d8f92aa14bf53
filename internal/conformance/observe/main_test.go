package observe_test

import (
	"testing"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
