package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

var (
	errNoAnswer    = errors.New("no answer in time; Kafka may have the message")
	errBusy        = errors.New("another Publish has the partition")
	errUnreachable = errors.New("no broker of Kafka can be reached")
)

// away is an error that is no message's fault.
func away(err error) error { return outbox.Unavailable(fmt.Errorf("publish to Kafka: %w", err)) }

// ofBatch is true of errors that a message brings upon all that are sent to its partition with it.
func ofBatch(err error) bool {
	return is(err, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp)
}

// ofTopic is true of what is not to be done in a topic. An administrator can change it.
func ofTopic(err error) bool {
	return is(err, kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition)
}

// ofClient is true of errors after which franz-go's client can be of no more use.
func ofClient(err error) bool {
	return is(err, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
		kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID, kerr.OutOfOrderSequenceNumber)
}

func is(err error, codes ...*kerr.Error) bool {
	for _, code := range codes {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// meaning tells the forwarder what became of a message. Errors of a batch are said of one message alone.
func meaning(err error) error {
	var said *kerr.Error
	switch {
	case err == nil, base.IsUnavailable(err):
		return err
	case ofBatch(err), is(err, kerr.InvalidTopicException):
		return outbox.Permanent(fmt.Errorf("publish to Kafka: %w", err))
	case errors.As(err, &said) && !said.Retriable && !ofTopic(err) && !ofClient(err):
		return fmt.Errorf("publish to Kafka: %w", err) // the forwarder finds out
	default:
		return away(err)
	}
}
