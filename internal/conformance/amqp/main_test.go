package amqp_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testforwarder"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

func TestMain(m *testing.M) {
	testforwarder.Run(func(job testforwarder.Job) (message.Publisher, error) {
		return amqp.NewPublisher(amqp.Config{URL: job.Broker, DeclareQueues: []string{job.Topic}}, nil)
	})
	testprocess.Run(consumerVariable, consumerJob.run)
	suite.Main(m, testbroker.Close)
}
