package admin

import (
	"context"
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// StreamParams name a blocked stream.
type StreamParams struct {
	// Topic and StreamKey are the stream. Required.
	Topic, StreamKey string

	// By is who does it. Defaults to an empty name.
	By string
}

// RequeueStream is outbox.Outbox.RequeueStream, and is recorded.
func (a *Admin) RequeueStream(ctx context.Context, params StreamParams) error {
	o, err := a.onStream("requeue stream", params)
	if err != nil {
		return err
	}
	return o.RequeueStream(ctx, params.Topic, params.StreamKey)
}

// SkipHead is outbox.Outbox.SkipHead, and is recorded.
func (a *Admin) SkipHead(ctx context.Context, params StreamParams) error {
	o, err := a.onStream("skip head", params)
	if err != nil {
		return err
	}
	return o.SkipHead(ctx, params.Topic, params.StreamKey)
}

// DiscardStream is outbox.Outbox.DiscardStream, and is recorded. Its AuditEntry counts messages in the transaction that takes
// them from the stream, before they are failed in another one, and at last the message that blocked the stream. If the
// process dies between the two, the messages go back to the stream although they are counted.
func (a *Admin) DiscardStream(ctx context.Context, params StreamParams) (int, error) {
	o, err := a.onStream("discard stream", params)
	if err != nil {
		return 0, err
	}
	return o.DiscardStream(ctx, params.Topic, params.StreamKey)
}

func (a *Admin) onStream(act string, params StreamParams) (*outbox.Outbox, error) {
	return a.recording(act, params.By, "StreamParams.By", fmt.Sprintf("topic '%s', stream '%s'", params.Topic, params.StreamKey))
}

// recording is the outbox, each batch of whose acts is recorded in the same transaction.
func (a *Admin) recording(act, by, byField, selection string) (*outbox.Outbox, error) {
	return a.recordingIn(&auditArg{By: by, Act: act, Selection: cut(selection)}, byField)
}

// recordingIn has the record in its caller's hands: it has a number once something was done.
func (a *Admin) recordingIn(record *auditArg, byField string) (*outbox.Outbox, error) {
	if err := field.Text(byField, record.By); err != nil {
		return nil, err
	}
	around := a.run.Around(func(ctx context.Context, batch seam.Batch) (int, error) { return a.recorded(ctx, record, batch) })
	o, ok := around.(*outbox.Outbox)
	if !ok {
		return nil, fmt.Errorf("record %s: the outbox is a %T", record.Act, around)
	}
	return o, nil
}
