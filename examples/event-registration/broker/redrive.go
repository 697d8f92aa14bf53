package broker

import (
	"context"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Redrive moves the dead letters of a queue of RabbitMQ back to it: those that are there now, each confirmed before it is
// taken away. It returns how many.
func Redrive(ctx context.Context, url, queue string) (moved int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("redrive %s: %w", queue, err)
		}
	}()
	connection, err := amqp091.Dial(url)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	channel, err := connection.Channel()
	if err != nil {
		return 0, err
	}
	if err := channel.Confirm(false); err != nil {
		return 0, err
	}
	if _, err := channel.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return 0, err
	}
	dead, err := channel.QueueDeclare(DeadLetters(queue), true, false, false, false, nil)
	if err != nil {
		return 0, err
	}
	for moved < dead.Messages {
		letter, found, err := channel.Get(dead.Name, false)
		if err != nil || !found {
			return moved, err
		}
		if err := again(ctx, channel, queue, letter); err != nil {
			return moved, err
		}
		moved++
	}
	return moved, nil
}

func again(ctx context.Context, channel *amqp091.Channel, queue string, letter amqp091.Delivery) error {
	delete(letter.Headers, HeaderWhy)
	confirmation, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp091.Publishing{
		Headers: letter.Headers, ContentType: letter.ContentType, Body: letter.Body, DeliveryMode: amqp091.Persistent,
	})
	if err != nil {
		return err
	}
	confirmed, err := confirmation.WaitContext(ctx)
	switch {
	case err != nil:
		return err
	case !confirmed:
		return errors.New("the broker refused a message")
	}
	return letter.Ack(false)
}
