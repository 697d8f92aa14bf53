package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// ForgetGroupParams name a consumer group.
type ForgetGroupParams struct {
	// Group is the consumer group. Required.
	Group string

	// By is who does it. Defaults to an empty name.
	By string
}

// ForgetGroup is outbox.Outbox.ForgetGroup, and is recorded. Its AuditEntry counts the group and its dead letters. It returns
// an error that wraps ErrNotFound if there is no such group.
func (a *Admin) ForgetGroup(ctx context.Context, params ForgetGroupParams) error {
	record := &auditArg{By: params.By, Act: "forget group", Selection: cut(fmt.Sprintf("group '%s'", params.Group))}
	o, err := a.recordingIn(record, "ForgetGroupParams.By")
	if err != nil {
		return err
	}
	if err := o.ForgetGroup(ctx, params.Group); err != nil {
		return err
	}
	if record.No == nil {
		return noGroupError(params.Group)
	}
	return nil
}

// A noGroupError is an ErrNotFound for a consumer group.
type noGroupError string

func (e noGroupError) Error() string {
	return fmt.Sprintf("admin: there is no consumer group %q", string(e))
}
func (e noGroupError) Is(target error) bool { return target == ErrNotFound }

// SkipGroupHeadParams name a consumer group that a message holds up.
type SkipGroupHeadParams struct {
	// Group and Topic are the consumer group and where it stands. Required.
	Group, Topic string

	// By is who does it. Defaults to an empty name.
	By string
}

// SkipGroupHead is outbox.Outbox.SkipGroupHead, and is recorded.
func (a *Admin) SkipGroupHead(ctx context.Context, params SkipGroupHeadParams) (outbox.LogMessage, error) {
	o, err := a.recording("skip for group", params.By, "SkipGroupHeadParams.By", fmt.Sprintf("group '%s', topic '%s'", params.Group, params.Topic))
	if err != nil {
		return outbox.LogMessage{}, err
	}
	return o.SkipGroupHead(ctx, params.Group, params.Topic)
}

// GroupActParams select dead letters of a consumer group.
type GroupActParams struct {
	outbox.GroupDeadLetterParams

	// By is who does it. Defaults to an empty name.
	By string
}

// RequeueGroupDeadLetters is outbox.Outbox.RequeueGroupDeadLetters, and is recorded.
func (a *Admin) RequeueGroupDeadLetters(ctx context.Context, params GroupActParams) (int, error) {
	o, err := a.recording("requeue for group", params.By, "GroupActParams.By", params.selection())
	if err != nil {
		return 0, err
	}
	return o.RequeueGroupDeadLetters(ctx, params.GroupDeadLetterParams)
}

// DiscardGroupDeadLetters is outbox.Outbox.DiscardGroupDeadLetters, and is recorded.
func (a *Admin) DiscardGroupDeadLetters(ctx context.Context, params GroupActParams) (int, error) {
	o, err := a.recording("discard for group", params.By, "GroupActParams.By", params.selection())
	if err != nil {
		return 0, err
	}
	return o.DiscardGroupDeadLetters(ctx, params.GroupDeadLetterParams)
}

func (p *GroupActParams) selection() string {
	parts := []string{fmt.Sprintf("group '%s'", p.Group)}
	if p.Topic != "" {
		parts = append(parts, fmt.Sprintf("topic '%s'", p.Topic))
	}
	if p.All {
		return strings.Join(append(parts, "all"), ", ")
	}
	for _, position := range p.Positions[:min(named, len(p.Positions))] {
		parts = append(parts, fmt.Sprintf("position %d", position))
	}
	if more := len(p.Positions) - named; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// PurgeParams select ended messages.
type PurgeParams struct {
	outbox.PurgeParams

	// By is who does it. Defaults to an empty name.
	By string
}

// Purge is outbox.Outbox.Purge, and is recorded; what a Subscriber's janitor purges is not.
func (a *Admin) Purge(ctx context.Context, params PurgeParams) (int, error) {
	what := "done messages"
	switch {
	case params.Failed:
		what = "dead letters"
	case params.Log:
		what = "messages of the log"
	}
	o, err := a.recording("purge", params.By, "PurgeParams.By", olderThan(what, params.OlderThan))
	if err != nil {
		return 0, err
	}
	return o.Purge(ctx, params.PurgeParams)
}

func olderThan(what string, age time.Duration) string {
	if age == 0 {
		return what
	}
	return what + " older than " + age.String()
}
