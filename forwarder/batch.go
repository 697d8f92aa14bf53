package forwarder

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// HeaderAttempt is a header that the forwarder adds: 1 for the first delivery to the broker. It also adds outbox.HeaderMessageID
// and, if the message has a stream key, outbox.HeaderStreamKey. A correlation id is in the header correlation_id.
const HeaderAttempt = "outbox_attempt"

// BatchError is returned by a Publisher that knows the result for each message, in the order of the call: nil if the broker
// has the message, Refused if the broker rejected it, outbox.Permanent if the broker will never accept it,
// outbox.Unavailable if the broker is away. The Forwarder works out itself what other errors mean.
type BatchError struct{ Errs []error }

func (e *BatchError) Error() string {
	failed := 0
	var first error
	for _, err := range e.Errs {
		if err == nil {
			continue
		}
		if failed++; first == nil {
			first = err
		}
	}
	return fmt.Sprintf("%d of %d messages were not published, the first because: %v", failed, len(e.Errs), first)
}

// Unwrap passes the errors of the messages to errors.Is and errors.As.
func (e *BatchError) Unwrap() []error { return e.Errs }

// An item is a message that the forwarder holds, as received and as published.
type item struct {
	received *message.Message
	outgoing *message.Message
	lane     lane
	claim    outbox.OwnerToken
	seq      outbox.WorkItemID
	size     int64 // of payload and metadata, in bytes

	err    error    // of the last try
	blocks blocking // while it waits

	failed  bool // before
	strikes int  // how often it has failed while others got through
	seen    int  // how many had got through when it last failed
}

// newItem makes an item. If its destination is empty, err says why.
func newItem(msg *message.Message, topic string, destination func(string, *message.Message) (string, error)) *item {
	to, err := destination(topic, msg)
	if err == nil && to == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		to, err = "", outbox.Permanent(fmt.Errorf("no destination for a message of the topic %q: %w", topic, err))
	}
	it := &item{received: msg, outgoing: outgoing(msg), lane: lane{destination: to}, size: int64(len(msg.Payload)), err: err}
	for name, value := range msg.Metadata {
		it.size += int64(len(name) + len(value))
	}
	if d, ok := outbox.DeliveryFrom(msg.Context()); ok {
		it.lane.key = d.StreamKey()
		it.seq, it.claim = seam.Delivery(d).Claim()
	}
	return it
}

// outgoing is a copy, because the broker's adapter may write to it.
func outgoing(msg *message.Message) *message.Message {
	out := message.NewMessageWithContext(msg.Context(), msg.UUID, msg.Payload)
	maps.Copy(out.Metadata, msg.Metadata)
	if d, ok := outbox.DeliveryFrom(msg.Context()); ok {
		out.Metadata[outbox.HeaderMessageID] = d.MessageID().String()
		out.Metadata[HeaderAttempt] = strconv.Itoa(d.Attempt())
		if d.StreamKey() != "" {
			out.Metadata[outbox.HeaderStreamKey] = d.StreamKey()
		}
	}
	return out
}

// publish returns the result for each item of one destination. exact is false if the publisher reports a failure without
// saying for which messages.
func (f *Forwarder) publish(items []*item) (errs []error, exact bool) {
	messages := make([]*message.Message, len(items))
	for i, it := range items {
		messages[i] = it.outgoing
	}
	err := f.call(items[0].lane.destination, messages)
	var each *BatchError
	if errors.As(err, &each) && len(each.Errs) == len(items) {
		return each.Errs, true
	}
	errs = make([]error, len(items))
	for i := range errs {
		errs[i] = err
	}
	return errs, err == nil || len(items) == 1
}

func (f *Forwarder) call(destination string, messages []*message.Message) error {
	defer f.calls.begin(destination, len(messages))()
	return f.publisher.Publish(destination, messages...)
}
