package streams_test

import (
	"testing"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// A fixture is the suite's, with what the tests of this package do often.
type fixture struct{ *suite.Fixture }

func forEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	suite.ForEach(t, func(t *testing.T, f *suite.Fixture) { test(t, &fixture{f}) })
}

func forEachEmpty(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	suite.ForEachEmpty(t, func(t *testing.T, f *suite.Fixture) { test(t, &fixture{f}) })
}

func TestMain(m *testing.M) {
	testprocess.Run(streamWorkerVariable, streamJob.run)
	suite.Main(m)
}
