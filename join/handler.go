package join

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// Headers of a continuation that describe its join.
const (
	HeaderJoinID         = "join_id"
	HeaderStatus         = "join_status" // completed, failed or cancelled
	HeaderExpectedSteps  = "join_expected_steps"
	HeaderCompletedSteps = "join_completed_steps"
	HeaderFailedSteps    = "join_failed_steps"
)

// AddWaitHandler adds the handler of join wait messages to a router. The subscriber is an outbox.Subscriber on the same
// database and the same outbox. Waits sent with EnqueueWait continue only while this handler runs somewhere.
func (c *Coordinator) AddWaitHandler(router *message.Router, subscriber message.Subscriber) *message.Handler {
	return router.AddConsumerHandler("outbox: "+c.config.WaitTopic, c.config.WaitTopic, subscriber, c.HandleWait)
}

// HandleWait handles one join wait message. While its join is pending, the message is put off and no attempt is spent. Once
// the join has ended, the continuation is inserted and the message acknowledged in one transaction, so that each wait sends
// one continuation. A payload that is no wait, or a join that does not exist, fails the message for good; any other error is
// outbox.Unavailable, and the message is tried again.
func (c *Coordinator) HandleWait(msg *message.Message) error {
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok || delivery.Group() != "" {
		return outbox.Permanent(errors.New("join: the message does not come from the queue of an outbox subscriber"))
	}
	err := c.handleWait(msg.Context(), delivery, msg.Payload)
	if err != nil {
		delivery.SetErr(err)
	}
	return err
}

func (c *Coordinator) handleWait(ctx context.Context, delivery *outbox.Delivery, payload []byte) error {
	t, err := readTicket(payload)
	if err != nil {
		return outbox.Permanent(err)
	}
	err = c.inside.InTx(ctx, c.db, func(ctx context.Context, x outbox.Executor) error {
		tx, _ := outbox.TxFrom(ctx)
		s, err := c.lookAt(ctx, x, t, delivery.MessageID(), true)
		if err != nil {
			return fmt.Errorf("wait for the join %v: %w", t.Join, err)
		}
		if s.status == Pending && s.overdue {
			if err := c.Cancel(ctx, x, t.Join); err != nil {
				return err
			}
			s.status = Cancelled
		}
		if s.status == Pending {
			c.decided(t, s, "waits on")
			return seam.Delivery(delivery).ReleaseTx(ctx, tx, s.again)
		}
		if err := c.proceed(ctx, x, t, s); err != nil {
			return err
		}
		return delivery.SettleTx(ctx, tx, outbox.Ack)
	})
	var bad *outbox.FieldError
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotAStep) || errors.As(err, &bad) {
		return outbox.Permanent(err)
	}
	return outbox.Unavailable(err) // of the database: the wait is not to blame
}

// proceed sends what follows a join that has ended.
func (c *Coordinator) proceed(ctx context.Context, x outbox.Executor, t ticket, s state) error {
	failed := s.failed(t.FailIfAnyStepFailed)
	if t.Parent != nil {
		c.decided(t, s, "ends a step of its parent")
		err := c.report(ctx, x, *t.Parent, outbox.MessageID(t.Join), s.status != Completed)
		if errors.Is(err, ErrNotFound) { // purged: a dead letter would keep this join from being purged too
			c.decided(t, s, "has no parent left")
			return nil
		}
		return err
	}
	next := t.OnComplete
	if failed {
		next = t.OnFail
	}
	if next == nil {
		c.decided(t, s, "has failed, and nothing follows")
		return nil
	}
	headers := map[string]string{}
	maps.Copy(headers, t.Headers)
	maps.Copy(headers, next.Headers)
	headers[HeaderJoinID] = t.Join.String()
	headers[HeaderStatus] = s.status.String()
	headers[HeaderExpectedSteps] = strconv.Itoa(s.expected)
	headers[HeaderCompletedSteps] = strconv.Itoa(s.completedSteps)
	headers[HeaderFailedSteps] = strconv.Itoa(s.failedSteps)
	c.decided(t, s, "continues with "+next.Topic)
	_, err := c.outbox.Enqueue(ctx, x, outbox.Message{
		UUID: watermill.NewUUID(), Topic: next.Topic, Payload: next.Payload, Headers: headers})
	return err
}

// decided logs what became of a wait.
func (c *Coordinator) decided(t ticket, s state, what string) {
	c.logger.Debug("A wait for a join "+what, watermill.LogFields{
		"join_id": t.Join.String(), "status": s.status.String(), "completed": s.completedSteps, "failed": s.failedSteps})
}

// state is the state of a join, as one of its waits sees it.
type state struct {
	status                      Status
	expected                    int
	completedSteps, failedSteps int
	strict                      bool          // its own status says whether it has failed: by quorum, or by the first failure
	overdue                     bool          // the deadline of this wait has passed
	again                       time.Duration // when to look again
}

// failed chooses between the two paths.
func (s state) failed(ifAnyStepFailed bool) bool {
	switch s.status {
	case Cancelled:
		return true
	case Failed:
		return ifAnyStepFailed || s.strict
	default:
		return false
	}
}

// lookAt records that a message waits for a join and reads the state of the join, under its lock. An unclaimed message is
// put off while the join is pending.
func (c *Coordinator) lookAt(ctx context.Context, x outbox.Executor, t ticket, waiter outbox.MessageID, claimed bool) (s state, err error) {
	arg := struct {
		ID        ID               `json:"id"`
		Message   outbox.MessageID `json:"message"`
		TimeoutMS int64            `json:"timeout_ms,omitempty"`
		RecheckMS int64            `json:"recheck_ms"`
		Claimed   bool             `json:"claimed"`
	}{t.Join, waiter, t.TimeoutMS, c.config.RecheckInterval.Milliseconds(), claimed}
	found := false
	err = c.inside.Run(ctx, x, "outbox_join_wait", arg, func(rows *sql.Rows) error {
		found = true
		var expected sql.NullInt64
		var again int64
		err := rows.Scan(&s.status, &expected, &s.completedSteps, &s.failedSteps, &s.strict, &s.overdue, &again)
		s.expected, s.again = int(expected.Int64), time.Duration(again)*time.Millisecond
		return err
	})
	if err == nil && !found {
		err = ErrNotFound
	}
	return s, err
}
