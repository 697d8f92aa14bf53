package amqp

import (
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
)

var (
	// ErrUnroutable means that no queue is bound for the message, and the broker has dropped it.
	ErrUnroutable = errors.New("no queue is bound for it")

	// ErrNacked means that a queue has not accepted the message: it is full and rejects messages, or it failed.
	ErrNacked = errors.New("the broker did not accept it (nack): its queue is full, or failed")
)

func unroutable(exchange, key string, r amqp091.Return) error {
	return forwarder.Refused(fmt.Errorf("amqp: publish to the exchange %q with the routing key %q: %w (%d %s)",
		exchange, key, ErrUnroutable, r.ReplyCode, r.ReplyText))
}

func nacked(exchange, key string) error {
	return fmt.Errorf("amqp: publish to the exchange %q with the routing key %q: %w", exchange, key, ErrNacked)
}

// away marks an error that is no message's fault.
func away(err error) error { return outbox.Unavailable(fmt.Errorf("amqp: %w", err)) }

// lost is the error of messages in flight when the connection ended.
func lost(cause *amqp091.Error) error {
	if cause == nil {
		return away(errors.New("the connection to RabbitMQ was closed before the message was confirmed"))
	}
	return away(fmt.Errorf("the connection to RabbitMQ ended before the message was confirmed: %w", cause))
}

// A collateralError means that the broker closed the channel, because of this message or of another one.
type collateralError struct{ cause *amqp091.Error }

func (e *collateralError) Error() string {
	return fmt.Sprintf("amqp: RabbitMQ closed the channel: %v", e.cause)
}

// blame is the error of the one message that made the broker close the channel.
func blame(exchange, key string, cause *amqp091.Error) error {
	err := fmt.Errorf("amqp: publish to the exchange %q with the routing key %q: %w", exchange, key, cause)
	switch cause.Code {
	case amqp091.PreconditionFailed, amqp091.ContentTooLarge, amqp091.FrameError, amqp091.SyntaxError, amqp091.NotImplemented:
		return outbox.Permanent(err)
	default:
		return forwarder.Refused(err)
	}
}

// concernsTheRoute reports whether the error applies to all messages to an exchange.
func concernsTheRoute(cause *amqp091.Error) bool {
	return cause.Code == amqp091.NotFound || cause.Code == amqp091.AccessRefused
}
