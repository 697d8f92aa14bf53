package amqp_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/incursa/watermill-outbox/forwarder/amqp"
	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers"
	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testforwarder"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// TestMain ends the run with the list of what did not run, and fails it if a goroutine is left over.
func TestMain(m *testing.M) {
	testforwarder.Run(func(job testforwarder.Job) (message.Publisher, error) {
		return amqp.NewPublisher(amqp.Config{URL: job.Broker, DeclareQueues: []string{job.Topic}}, nil)
	})
	testprocess.Run(consumerVariable, consumerJob.run)
	code := m.Run()
	for _, end := range []func() error{testbroker.Close, skipped.Report, leftOver} {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func leftOver() error { return goleak.Find() }
