// Package workers_test is about workers among others: how the database knows which live, what becomes of those that do not, and
// how streams are shared.
package workers_test

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

func TestMain(m *testing.M) {
	testprocess.Run(holderVariable, holderJob.run)
	goleak.VerifyTestMain(m)
}
