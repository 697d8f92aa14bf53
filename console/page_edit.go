package console

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"unicode/utf8"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Why a message cannot be edited here.
var (
	errHidden  = errors.New("parts of this message are hidden from you, and a copy would lose them")
	errNotText = errors.New("the payload is not text; publish a new message instead")
	errTooLong = errors.New("the payload is too long for a form; publish a new message instead")
)

// editPage shows the payload of a dead letter in a form.
func (v *visit) editPage() {
	ctx, cancel := v.context()
	defer cancel()
	record, ok := v.editable(ctx)
	if !ok {
		return
	}
	v.render("edit", &page{Title: "Edit", At: "dead", Body: struct {
		*outbox.Record
		Text string
	}{record, string(record.Payload)}})
}

// edit puts a changed copy in the place of a dead letter.
func (v *visit) edit() {
	if !v.mayPost(Edit) {
		return
	}
	ctx, cancel := v.context()
	defer cancel()
	record, ok := v.editable(ctx)
	if !ok {
		return
	}
	texts, set := v.r.PostForm["payload"]
	if !set {
		v.fail(field.Bad("payload", "is missing"))
		return
	}
	text := texts[0]
	if !bytes.Contains(record.Payload, []byte("\r\n")) {
		text = strings.ReplaceAll(text, "\r\n", "\n") // forms send no other line ends
	}
	id, err := v.place.admin.Edit(ctx, admin.EditParams{ID: record.ID, Payload: []byte(text), By: v.config.Actor(v.r)})
	v.done(err, "message/"+id.String())
}

// editable reads the dead letter that the path names. It returns false if it has already said why it cannot be edited.
func (v *visit) editable(ctx context.Context) (*outbox.Record, bool) {
	for _, right := range []Right{Edit, Reveal} {
		if err := v.authorize(right); err != nil {
			v.refuse(Action{right, v.place.ID()}, err)
			return nil, false
		}
	}
	story, err := v.story(ctx, v.place.admin, v.r.PathValue("id"))
	if err != nil {
		v.fail(err)
		return nil, false
	}
	r := &story.Record
	shown := r.Message
	shown.Payload, shown.Headers = bytes.Clone(r.Payload), maps.Clone(r.Headers)
	switch {
	case r.Status != outbox.Failed:
		err = admin.ErrNotFailed
	case !v.config.Redact(v.r, &shown) || !bytes.Equal(shown.Payload, r.Payload):
		err = errHidden
	case !utf8.Valid(r.Payload) || bytes.ContainsRune(r.Payload, 0):
		err = errNotText
	case len(r.Payload) > maxForm/4: // a form may take three bytes for one
		err = errTooLong
	}
	if err != nil {
		v.fail(err)
	}
	return r, err == nil
}
