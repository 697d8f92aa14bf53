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
	errBusy        = errors.New("another Publish is using the partition")
	errUnreachable = errors.New("no broker of Kafka can be reached")
)

// away marks an error that is no message's fault.
func away(err error) error { return outbox.Unavailable(fmt.Errorf("publish to Kafka: %w", err)) }

// ofBatch reports whether one message may have failed all that were sent to its partition with it.
func ofBatch(err error) bool {
	return is(err, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp)
}

// ofTopic reports whether the topic does not exist or may not be written to, which an administrator can change.
func ofTopic(err error) bool {
	return is(err, kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition)
}

// ofClient reports whether franz-go's client is unusable after the error.
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

// meaning translates an error for the forwarder. Errors of a batch must be those of a single message.
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
