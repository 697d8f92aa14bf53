package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/incursa/watermill-outbox/forwarder/kafka"
	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers"
	"github.com/incursa/watermill-outbox/internal/testforwarder"
)

func TestMain(m *testing.M) {
	testforwarder.Run(func(job testforwarder.Job) (message.Publisher, error) {
		return kafka.NewPublisher(kafka.Config{Brokers: strings.Split(job.Broker, ","), RetryTimeout: 200 * time.Millisecond}, nil)
	})
	goleak.VerifyTestMain(m)
}
