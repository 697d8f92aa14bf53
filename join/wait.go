package join

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// A Continuation is the message that follows a join.
type Continuation struct {
	// Topic is where it goes, as in outbox.Message.
	Topic string `json:"topic"`

	// Payload may be empty.
	Payload []byte `json:"payload,omitempty"`

	// Headers are sent with it, in addition to those that describe the join: join_id, join_status, join_expected_steps,
	// join_completed_steps and join_failed_steps.
	Headers map[string]string `json:"headers,omitempty"`
}

// A Wait says what follows the end of a join.
type Wait struct {
	// ID names the wait's message, so that an EnqueueWait whose outcome is unknown can be repeated without a second
	// continuation: outbox.ErrDuplicateID then says that it exists. Outbox.NewID makes one. Defaults to a new one.
	ID outbox.MessageID

	// Join is the join to wait for. Required.
	Join ID

	// OnComplete is sent once the join has completed. Required.
	OnComplete Continuation

	// OnFail is sent if the join has failed or was cancelled. Nil sends nothing in that case.
	OnFail *Continuation

	// FailIfAnyStepFailed sends OnFail if the join waits for all its steps and one of them has failed. Without it, such a
	// join takes the success path when all have ended. Joins with a Quorum or FailFast go by their status. Defaults to
	// false.
	FailIfAnyStepFailed bool

	// Timeout is how long to wait, by the database's clock. Then the join is cancelled, which wakes everything that waits
	// for it. Defaults to no limit.
	Timeout time.Duration

	// Headers travel with the wait and are passed on to the continuation, whose own headers win, so that a trace goes on.
	// Defaults to none.
	Headers map[string]string
}

// ticket is a Wait as the payload of a message.
type ticket struct {
	Join                ID            `json:"join_id"`
	FailIfAnyStepFailed bool          `json:"fail_if_any_step_failed"`
	OnComplete          *Continuation `json:"on_complete,omitempty"`
	OnFail              *Continuation `json:"on_fail,omitempty"`
	TimeoutMS           int64         `json:"timeout_ms,omitempty"`
	Parent              *ID           `json:"parent_join_id,omitempty"` // whose step the join is

	Headers map[string]string `json:"headers,omitempty"`
}

// maxTimeout keeps deadlines within the years that every database can store.
const maxTimeout = 10 * 365 * 24 * time.Hour

func (t *ticket) validate() error {
	if err := validateID(t.Join); err != nil {
		return err
	}
	if t.TimeoutMS < 0 || t.TimeoutMS > maxTimeout.Milliseconds() {
		return badTimeout()
	}
	if err := validateHeaders("Wait.Headers", t.Headers); err != nil {
		return err
	}
	if t.Parent != nil {
		return validateID(*t.Parent)
	}
	if t.OnComplete == nil {
		return field.Bad("Wait.OnComplete", "is missing")
	}
	if err := t.OnComplete.validate("Wait.OnComplete"); err != nil {
		return err
	}
	if t.OnFail != nil {
		return t.OnFail.validate("Wait.OnFail")
	}
	return nil
}

// validate refuses now what could not be sent later.
func (c *Continuation) validate(name string) error {
	if err := validateTopic(name+".Topic", c.Topic); err != nil {
		return err
	}
	return validateHeaders(name+".Headers", c.Headers)
}

func validateHeaders(name string, headers map[string]string) error {
	for key, value := range headers {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return field.Bad(name, "header %q is not valid UTF-8; put bytes into the payload, or encode them", key)
		}
	}
	// The length of this one is limited, as in outbox.Message.
	if problem := limits.Text(headers[base.HeaderCorrelationID]); problem != "" {
		return field.Bad(name, "%s %s", base.HeaderCorrelationID, problem)
	}
	return nil
}

func badTimeout() error {
	return field.Bad("Wait.Timeout", "is not between 0, for none, and %v", maxTimeout)
}

// EnqueueWait inserts a message on the wait topic that sends the continuation when the join has ended; the handler of
// AddWaitHandler must run for that topic. The message is put off at once and made due by the end of the join: waiting spends
// no attempts, however long it takes. If the join has already ended, the continuation follows at once. Any number of
// messages may wait for a join.
//
// It locks the join's row until x is committed: unless the join was started in the same transaction, keep the rest of it
// short. It returns ErrNotFound, outbox.ErrDuplicateID if Wait.ID exists already, and an *outbox.FieldError for a bad Wait.
func (c *Coordinator) EnqueueWait(ctx context.Context, x outbox.Executor, wait Wait) (outbox.MessageID, error) {
	if wait.Timeout < 0 || wait.Timeout > maxTimeout {
		return outbox.MessageID{}, badTimeout()
	}
	return c.enqueueWait(ctx, x, wait.ID, ticket{
		Join: wait.Join, FailIfAnyStepFailed: wait.FailIfAnyStepFailed, OnComplete: &wait.OnComplete, OnFail: wait.OnFail,
		TimeoutMS: (wait.Timeout + time.Millisecond - 1).Milliseconds(), // a part of a millisecond is not zero
		Headers:   wait.Headers})
}

// AttachJoin makes a join a step of another: the step completes or fails with it, and fails if it is cancelled. The handler
// of AddWaitHandler reports the end. It returns what Attach returns; ErrNotFound may mean either join. Joins that form a
// circle wait until one is cancelled or times out.
func (c *Coordinator) AttachJoin(ctx context.Context, x outbox.Executor, parent, child ID) error {
	if parent == child {
		return field.Bad("child", "is the parent itself, which would never end")
	}
	return c.inside.InTx(ctx, x, func(ctx context.Context, tx outbox.Executor) error {
		if err := c.attach(ctx, tx, parent, []outbox.MessageID{outbox.MessageID(child)}, attachArg{ByReport: true}); err != nil {
			return err
		}
		_, err := c.enqueueWait(ctx, tx, outbox.MessageID{}, ticket{Join: child, Parent: &parent})
		return err
	})
}

func (c *Coordinator) enqueueWait(ctx context.Context, x outbox.Executor, id outbox.MessageID, t ticket) (outbox.MessageID, error) {
	if err := t.validate(); err != nil {
		return outbox.MessageID{}, err
	}
	payload, err := json.Marshal(t)
	if err != nil {
		return outbox.MessageID{}, fmt.Errorf("encode the wait: %w", err)
	}
	err = c.inside.InTx(ctx, x, func(ctx context.Context, tx outbox.Executor) error {
		ids, err := c.outbox.Enqueue(ctx, tx, outbox.Message{
			ID: id, UUID: watermill.NewUUID(), Topic: c.config.WaitTopic, Payload: payload, Headers: t.Headers})
		if err != nil {
			return err
		}
		id = ids[0]
		_, err = c.lookAt(ctx, tx, t, id, false)
		return err
	})
	if err != nil {
		return outbox.MessageID{}, fmt.Errorf("wait for the join %v: %w", t.Join, err)
	}
	return id, nil
}

// readTicket reads the payload of a wait message.
func readTicket(payload []byte) (t ticket, err error) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	if err := decoder.Decode(&t); err != nil {
		return ticket{}, fmt.Errorf("the payload is no wait for a join: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return ticket{}, errors.New("the payload is no wait for a join: there is more after it")
	}
	if err := t.validate(); err != nil {
		return ticket{}, fmt.Errorf("the payload is no wait for a join: %w", err)
	}
	return t, nil
}
