package observe_test

import (
	"testing"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

func TestMain(m *testing.M) {
	testprocess.Run(workerVariable, worker.run)
	suite.Main(m)
}
