package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/join"
)

// ErrNotFailed is returned by Edit for a message that is not a dead letter: another operator was faster, or it never was one.
var ErrNotFailed = errors.New("admin: the message is not a dead letter")

// EditParams say what takes the place of a dead letter.
type EditParams struct {
	// ID is the dead letter. Required.
	ID outbox.MessageID

	// Payload is that of the new message; one that is empty and not nil is an empty payload. Defaults to nil: that of the dead
	// letter.
	Payload []byte

	// Headers are those of the new message, without join.HeaderStepOf, as the copy is no step. Defaults to nil: those of the dead
	// letter, without that and without its Message.ExpiresAt.
	Headers map[string]string

	// By is who does it. Defaults to an empty name.
	By string
}

// Edit enqueues a changed copy of a dead letter under a new id, which it returns, due at once and with all attempts. The dead
// letter is kept as done, with a LastError that names the copy, so that it is not requeued, too. In a stream the copy comes
// last, and those behind the dead letter go on. A join that counted the dead letter as failed keeps that; the copy is no step
// of it, as a join counts a step once and Requeue does not change that either. It returns ErrNotFound, ErrNotFailed, or a
// *outbox.FieldError for bad parameters.
func (a *Admin) Edit(ctx context.Context, params EditParams) (outbox.MessageID, error) {
	if err := field.Text("EditParams.By", params.By); err != nil {
		return outbox.MessageID{}, err
	}
	if params.Headers[join.HeaderStepOf] != "" {
		return outbox.MessageID{}, field.Bad("EditParams.Headers["+join.HeaderStepOf+"]", "is set, but the copy is no step of a join, so join.Middleware "+
			"would refuse it each time; leave it out")
	}
	records, err := a.outbox.Get(ctx, params.ID)
	switch {
	case err != nil:
		return outbox.MessageID{}, err
	case len(records) == 0:
		return outbox.MessageID{}, ErrNotFound
	case records[0].Status != outbox.Failed:
		return outbox.MessageID{}, ErrNotFailed
	}
	id, err := a.outbox.NewID()
	if err != nil {
		return outbox.MessageID{}, err
	}
	edited := params.edited(records[0].Message)
	edited.ID = id
	record := &auditArg{By: params.By, Act: "edit", Selection: fmt.Sprintf("%s, now %s", params.ID, id)}
	_, err = a.recorded(ctx, record, func(ctx context.Context, x base.Executor) (int, error) {
		if _, err := a.outbox.Enqueue(ctx, x, edited); err != nil {
			return 0, err
		}
		n, err := a.end(ctx, x, []outbox.MessageID{params.ID}, fmt.Sprintf("edited%s, and enqueued again as %s", byWhom(params.By), id), true)
		if err == nil && n == 0 {
			err = ErrNotFailed
		}
		return n, err
	})
	if err != nil {
		return outbox.MessageID{}, err
	}
	return id, nil
}

// edited is the message with what is to be changed.
func (p *EditParams) edited(m outbox.Message) outbox.Message {
	if p.Payload != nil {
		m.Payload = p.Payload
	}
	m.Headers = maps.Clone(m.Headers)
	delete(m.Headers, "outbox_expires_at")
	delete(m.Headers, join.HeaderStepOf)
	if p.Headers != nil {
		m.Headers = p.Headers
		m.CorrelationID = "" // the headers have it, or else it is gone
	}
	return outbox.Message{UUID: m.UUID, Topic: m.Topic, Payload: m.Payload, Headers: m.Headers, CorrelationID: m.CorrelationID, StreamKey: m.StreamKey}
}
