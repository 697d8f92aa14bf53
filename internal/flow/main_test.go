package flow_test

import (
	"testing"

	"github.com/incursa/watermill-outbox/internal/testexample"
)

func TestMain(m *testing.M) { testexample.Main(m) }
