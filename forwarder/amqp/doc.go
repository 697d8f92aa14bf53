// Package amqp publishes to RabbitMQ for a forwarder: a message counts as published once the broker has confirmed it, and a
// message that no queue has taken is an error instead of being lost.
//
//	publisher, err := amqp.NewPublisher(amqp.Config{URL: "amqp://…", DeclareQueues: []string{"orders"}}, logger)
//	f, err := forwarder.New(db, publisher, forwarder.Config{Topics: []string{"orders"}, …}, logger)
//
// # What becomes of a message
//
//	confirmed                                    published
//	returned: no queue has its routing key       forwarder.Refused, ErrUnroutable: an attempt, and again after the backoff;
//	                                             with Config.Unroutable = Drop, published
//	no such exchange, no right to publish        forwarder.Refused, with the broker's words
//	larger than allowed, bad in itself           outbox.Permanent: fails at once
//	not confirmed by the queue (full, failing)   ErrNacked: the forwarder finds out whether anything gets through
//	no connection, no answer, broker blocked     outbox.Unavailable: held, no attempt spent
//
// If RabbitMQ answers an exchange or a message by closing the channel, other messages in flight are lost with it. They are
// published again, in smaller and smaller parts on a channel of their own, so that the error reaches the message that caused
// it.
//
// # Consumers
//
// Any consumer of watermill-amqp understands the messages, with its DefaultMarshaler: the payload is the body, metadata are
// headers, the UUID is the header _watermill_message_uuid. The property message-id is the outbox's MessageID, which is the
// same however often the message arrives. Package wmamqp has a configuration for it.
package amqp
