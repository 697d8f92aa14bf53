package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/inbox"
)

// An entry is what an inbox knows of a message.
type entry struct {
	Source      string `json:"source"`
	MessageID   string `json:"message_id"`
	Handler     string `json:"handler"`
	State       string `json:"state"`
	Seen        int    `json:"seen"`
	FirstSeenAt string `json:"first_seen_at"`
	LastSeenAt  string `json:"last_seen_at"`
	ProcessedAt string `json:"processed_at,omitempty"`
	QueueID     string `json:"queue_id,omitempty"`
	Attempts    int    `json:"attempts"`
	LastError   string `json:"last_error,omitempty"`
	Hash        string `json:"hash"`
	ResultSize  int    `json:"result_size"`
}

func newEntry(e inbox.Entry) entry {
	queue := ""
	if e.QueueID != (outbox.MessageID{}) {
		queue = e.QueueID.String()
	}
	return entry{e.Key.Source, e.Key.MessageID, e.Key.Handler, e.Status.String(), e.Seen, moment(e.FirstSeenAt), moment(e.LastSeenAt),
		moment(e.ProcessedAt), queue, e.Attempts, e.LastError, e.Hash.String(), len(e.Result)}
}

// queue is that of the inbox.
func (db *database) queue() (*outbox.Outbox, error) {
	in, err := db.inbox()
	if err != nil {
		return nil, err
	}
	return in.Queue(), nil
}

// queueAdmin looks after the queue of the inbox.
func (db *database) queueAdmin() (*admin.Admin, error) {
	queue, err := db.queue()
	if err != nil {
		return nil, err
	}
	return admin.New(queue)
}

func (a *app) inboxCommand() *cobra.Command {
	var flags pageFlags
	messages := a.action(&cobra.Command{Use: "list", Short: "List messages in the inbox's queue, the most recently received first", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			of, err := db.queueAdmin()
			if err != nil {
				return err
			}
			return a.listMessages(ctx, of, &flags)
		})
	flags.add(messages, "were received")
	flags.addStates(messages)
	requeue := &act{app: a, verb: "Requeue", past: "requeued", do: (*admin.Admin).Requeue, on: (*database).queue, under: "inbox"}
	return group("inbox", "The inbox: messages that were received", messages, a.inboxShowCommand(),
		requeue.command("requeue [ID...]", "Make failed messages of the inbox's queue ready again, by ids or by a filter"), a.inboxPurgeCommand())
}

func (a *app) inboxShowCommand() *cobra.Command {
	return a.action(&cobra.Command{Use: "show SOURCE MESSAGE HANDLER", Short: "Show what the inbox knows of a message", Args: arguments(cobra.ExactArgs(3))},
		func(ctx context.Context, db *database, args []string) error {
			in, err := db.inbox()
			if err != nil {
				return err
			}
			found, err := in.Get(ctx, inbox.Key{Source: args[0], MessageID: args[1], Handler: args[2]})
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return inbox.ErrNotFound
			}
			e := newEntry(found[0])
			return a.render.show(e, []fact{{"source", e.Source}, {"message", e.MessageID}, {"handler", e.Handler}, {"state", e.State},
				{"arrived", counted(e.Seen, "time", "times")}, {"first", clock(found[0].FirstSeenAt)}, {"last", clock(found[0].LastSeenAt)},
				{"processed", clock(found[0].ProcessedAt)}, {"in the queue", e.QueueID}, {"attempts", fmt.Sprint(e.Attempts)},
				{"last error", short(e.LastError)}, {"hash", e.Hash}, {"result", counted(e.ResultSize, "byte", "bytes")}})
		})
}

func (a *app) inboxPurgeCommand() *cobra.Command {
	var older age
	var failed bool
	c := a.action(&cobra.Command{Use: "purge --older-than AGE", Short: "Delete entries that ended longer ago, with their messages", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			in, err := db.inbox()
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, "Delete all entries that ended more than %s ago? Their messages count as new if they arrive again.", older.String()); err != nil {
				return err
			}
			n, err := in.Purge(ctx, outbox.PurgeParams{OlderThan: older.duration, Failed: failed})
			if err != nil {
				return err
			}
			return a.done("%s deleted.", n, "entry was", "entries were")
		})
	older.required(c)
	c.Flags().BoolVar(&failed, "failed", false, "those that have failed, instead of those that are done")
	return c
}
