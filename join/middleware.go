package join

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// HeaderStepOf holds the id of the join that a message is a step of, for Middleware.
const HeaderStepOf = "outbox_join_step_of"

// Middleware ends the steps of AttachByReport where their messages are handled: behind a relay, on a broker's subscriber.
// When the handler succeeds, the step is completed in every join that has it. When it fails for good, with outbox.Permanent,
// the step has failed. Any other error changes nothing, because the message is delivered again. Messages are recognized by
// the header outbox.HeaderMessageID, or as deliveries of the outbox itself; others pass through.
//
// A message with the header HeaderStepOf must be a step of that join. If it is not one yet, because it was handled before
// AttachByReport was committed, the error is ErrNotAStep and the message is delivered again. Without the header, such a
// message looks like one that is no step: attach it in the transaction that publishes it.
//
// Put it closer to the handler than a poison queue, which swallows the error. A step is reported after its handler has
// returned, within 30 s, and a crash in between delivers the message again: make the handler idempotent like any other.
func Middleware(c *Coordinator) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			id, known, err := stepOf(msg)
			if err != nil {
				return nil, outbox.Permanent(err)
			}
			produced, err := next(msg)
			if !known || err != nil && !outbox.IsPermanent(err) {
				return produced, err
			}
			// The handler is done, and its context may have ended, but the report is still due. If the report fails, the
			// message must be delivered again, even if the handler's own error is permanent; otherwise the join would wait
			// forever.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(msg.Context()), limits.Reporting)
			defer cancel()
			reportErr := c.reportStep(ctx, msg.Metadata[HeaderStepOf], id, err != nil)
			switch {
			case reportErr == nil:
				return produced, err
			case err == nil:
				return produced, reportErr
			default:
				return produced, fmt.Errorf("%w, after the handler failed: %s", reportErr, err.Error())
			}
		}
	}
}

// stepOf is the id under which a message may be a step.
func stepOf(msg *message.Message) (id outbox.MessageID, known bool, err error) {
	if text := msg.Metadata[outbox.HeaderMessageID]; text != "" {
		if id, err = base.ParseMessageID(text); err != nil {
			return id, false, fmt.Errorf("join: the header %s: %w", outbox.HeaderMessageID, err)
		}
		return id, true, nil
	}
	if delivery, ok := outbox.DeliveryFrom(msg.Context()); ok {
		return delivery.MessageID(), true, nil
	}
	return id, false, nil
}

// reportStep ends a step in all joins that have it, and in the one that must have it.
func (c *Coordinator) reportStep(ctx context.Context, stepOf string, message outbox.MessageID, failed bool) error {
	if stepOf != "" {
		id, err := ParseID(stepOf)
		if err != nil {
			return outbox.Permanent(fmt.Errorf("join: the header %s: %w", HeaderStepOf, err))
		}
		if err := c.report(ctx, c.db, id, message, failed); err != nil {
			return err
		}
	}
	return c.reportAll(ctx, message, failed)
}

// reportAll ends a step in all joins that have it.
func (c *Coordinator) reportAll(ctx context.Context, message outbox.MessageID, failed bool) error {
	if err := c.change(ctx, c.db, "outbox_join_report", reportArg{nil, message, failed}); err != nil {
		return fmt.Errorf("report the step %v: %w", message, err)
	}
	return nil
}
