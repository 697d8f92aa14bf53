package join_test

import (
	"testing"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// A fixture is the suite's, with what the tests of this package do often.
type fixture struct{ *suite.Fixture }

// forEach runs a test on every database with an installed outbox, forEachEmpty with nothing installed.
var forEach, forEachEmpty = suite.Each(func(f *suite.Fixture) *fixture { return &fixture{f} })

func TestMain(m *testing.M) {
	testprocess.Run(killWorkerVariable, killJob.run)
	suite.Main(m)
}
