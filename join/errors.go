package join

import (
	"errors"
	"fmt"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Errors that callers can test for with errors.Is. Nothing was changed when they are returned.
var (
	// ErrNotFound is returned when there is no join with the id.
	ErrNotFound = errors.New("join: there is no such join in this database; start it in the same database, and commit it first")

	// ErrExists is returned by Start, with the id, when a join with StartParams.ID exists already.
	ErrExists = errors.New("join: there is a join with this id already")

	// ErrEnded is returned when steps are attached to a join that has ended, or when it is sealed or cancelled.
	ErrEnded = errors.New("join: the join has ended; start another one")

	// ErrFull is returned when more steps are attached than the join expects.
	ErrFull = errors.New("join: the join has all the steps that it expects; start it with more, or open")

	// ErrMessageNotFound is returned when a message to attach is not in the outbox. If it is handled elsewhere, use
	// AttachByReport; if it was published in a transaction of its own, attach after that has committed.
	ErrMessageNotFound = errors.New("join: there is no such message in the outbox")

	// ErrLogOnly is returned when a message to attach was published with outbox.LogOnly: it never ends, and so would the
	// join. Publish it with QueueAndLog, or use AttachByReport.
	ErrLogOnly = errors.New("join: the message is for the log alone, and never ends")

	// ErrNotAStep is returned when a step is reported that the join does not have.
	ErrNotAStep = errors.New("join: the message is not a step of the join; attach it first")
)

var reasons = map[base.JoinReason]error{
	base.NoSuchJoin:    ErrNotFound,
	base.JoinHasEnded:  ErrEnded,
	base.JoinIsFull:    ErrFull,
	base.NoSuchMessage: ErrMessageNotFound,
	base.NotAStep:      ErrNotAStep,
	base.IsLogOnly:     ErrLogOnly,
}

// refused turns the database's refusal into an error of this package.
func refused(err error) error {
	var refusal *base.JoinRefusal
	if !errors.As(err, &refusal) {
		return err
	}
	known, ok := reasons[refusal.Reason]
	switch {
	case refusal.Reason == base.NoSuchMessage, refusal.Reason == base.IsLogOnly:
		return fmt.Errorf("%w: %s", known, refusal.ID)
	case ok:
		return known
	}
	return fmt.Errorf("join: %w", refusal) // from operations newer than this package
}

func validateTopic(name, topic string) error {
	if topic == "" {
		return field.Bad(name, "is empty; every message needs a topic")
	}
	return field.Key(name, topic)
}
