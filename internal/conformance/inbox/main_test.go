package inbox_test

import (
	"testing"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// An inboxFixture is the suite's, with what the tests of this package do often.
type inboxFixture struct{ *suite.InboxFixture }

func forEachInbox(t *testing.T, test func(t *testing.T, f *inboxFixture)) {
	t.Helper()
	suite.ForEachInbox(t, func(t *testing.T, f *suite.InboxFixture) { test(t, &inboxFixture{f}) })
}

func TestMain(m *testing.M) {
	testprocess.Run(inboxWorkerVariable, inboxJob.run)
	suite.Main(m)
}
