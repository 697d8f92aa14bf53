package eventstore_test

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

func TestMain(m *testing.M) {
	testprocess.Run(projectVariable, projectJob.run)
	testprocess.RunMeasured(readVariable, readJob.run)
	goleak.VerifyTestMain(m)
}
