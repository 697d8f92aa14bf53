package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/join"
)

// editing are the flags of edit.
type editing struct {
	payload, file string
	headers       []string
}

func (a *app) editCommand() *cobra.Command {
	var e editing
	c := a.action(&cobra.Command{Use: "edit ID", Short: "Enqueue a changed copy of a dead letter, which is kept as done", Args: arguments(cobra.ExactArgs(1)),
		Long: `Enqueue a changed copy of a dead letter under a new id. The dead letter is kept as done, so that it is not requeued, too. A
join that has counted it as failed keeps that; in a stream the copy comes last.`,
		Example: `  outbox message show ID --raw > order.json
  outbox dead edit ID --file order.json
  outbox dead edit ID --payload '{"id": 7}' --header tenant=acme`}, func(ctx context.Context, db *database, args []string) error { return a.edit(ctx, db, args[0], &e) })
	flags := c.Flags()
	flags.StringVar(&e.payload, "payload", "", "the new payload (default the old one)")
	flags.StringVar(&e.file, "file", "", "a file with the new payload, or - for the input")
	flags.StringArrayVar(&e.headers, "header", nil, "a header to set: name=value, or name= to remove it")
	c.MarkFlagsMutuallyExclusive("payload", "file")
	c.MarkFlagsOneRequired("payload", "file", "header")
	return c
}

func (a *app) edit(ctx context.Context, db *database, text string, e *editing) error {
	of, err := db.admin()
	if err != nil {
		return err
	}
	params := admin.EditParams{By: a.actor()}
	if err := params.ID.UnmarshalText([]byte(text)); err != nil {
		return usage("%q is no message id: lists have them in their first column", text)
	}
	switch {
	case e.file != "":
		if params.Payload, err = a.readAll(ctx, "the payload", e.file); err != nil {
			return err
		}
	case e.payload != "":
		params.Payload = []byte(e.payload)
	}
	if len(e.headers) > 0 {
		o, err := db.outbox()
		if err != nil {
			return err
		}
		if params.Headers, err = e.changed(ctx, o, params.ID); err != nil {
			return err
		}
	}
	id, err := of.Edit(ctx, params)
	if err != nil {
		return err
	}
	return a.render.show(struct {
		ID string `json:"id"`
	}{id.String()}, []fact{{"id", id.String()}})
}

// changed returns the headers of a message with those that were given, and without those that would end or refuse the copy.
func (e *editing) changed(ctx context.Context, o *outbox.Outbox, id outbox.MessageID) (map[string]string, error) {
	records, err := o.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, admin.ErrNotFound
	}
	headers := map[string]string{}
	for name, value := range records[0].Headers {
		headers[name] = value
	}
	delete(headers, headerExpiresAt)
	delete(headers, join.HeaderStepOf)
	for _, header := range e.headers {
		name, value, found := strings.Cut(header, "=")
		switch {
		case !found:
			return nil, usage("--header %q has no =; write name=value", header)
		case name == outbox.HeaderStreamKey:
			return nil, usage("--header %s would change nothing: the copy stays in the stream of the dead letter", name)
		case isOurs(name) && value != "":
			return nil, usage("--header %s is set by the library", name)
		}
		if headers[name] = value; value == "" {
			delete(headers, name)
		}
	}
	return headers, nil
}
