package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/incursa/watermill-outbox/admin"
)

// An entry of the record of what operators did.
type auditEntry struct {
	No        int64  `json:"no"`
	At        string `json:"at"`
	By        string `json:"by,omitempty"`
	Act       string `json:"act"`
	Selection string `json:"selection"`
	Affected  int    `json:"affected"`

	from admin.AuditEntry
}

func (e auditEntry) cells() []string {
	return []string{clock(e.from.At), e.By, e.Act, number(e.Affected), short(e.Selection)}
}

func (a *app) auditCommand() *cobra.Command {
	var params admin.AuditParams
	c := a.onAdmin(&cobra.Command{Use: "list", Short: "List what operators did, the latest first", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, of *admin.Admin, _ []string) error {
			found, err := of.Audit(ctx, params)
			if err != nil {
				return err
			}
			var entries []auditEntry
			for _, e := range found {
				entries = append(entries, auditEntry{e.No, moment(e.At), e.By, e.Act, e.Selection, e.Affected, e})
			}
			if err := list(a.render, "WHEN, BY, ACT, AFFECTED, SELECTION", entries, "Nothing is recorded."); err != nil {
				return err
			}
			if len(found) < params.Limit || a.render.json {
				return nil
			}
			return a.render.say("\nMore: the same command with --before %d", found[len(found)-1].No)
		})
	limited(c, &params.Limit, 20, "the most to list, 1 to 1,000")
	c.Flags().Int64Var(&params.Before, "before", 0, "where the page before ended, as it says")
	return group("audit", "The record of what operators did", c)
}

// A worker is a row of workers.
type worker struct {
	Name      string `json:"name"`
	Alive     bool   `json:"alive"`
	StartedAt string `json:"started_at"`
	SeenAt    string `json:"seen_at,omitempty"`
	StoppedAt string `json:"stopped_at,omitempty"`
	Leases    int    `json:"leases"`
	Messages  int    `json:"messages"`
	Streams   int    `json:"streams"`

	from admin.Worker
}

func (w worker) cells() []string {
	return []string{w.Name, w.state(), clock(w.from.StartedAt), number(w.Leases), number(w.Messages), number(w.Streams)}
}

func (w worker) state() string {
	switch {
	case w.Alive:
		return "alive"
	case !w.from.StoppedAt.IsZero():
		return "stopped " + clock(w.from.StoppedAt)
	case !w.from.SeenAt.IsZero():
		return "silent since " + clock(w.from.SeenAt)
	default:
		return "no subscriber"
	}
}

func (a *app) workersCommand() *cobra.Command {
	return a.onAdmin(&cobra.Command{Use: "workers", Short: "List workers and what they hold, those alive first", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, of *admin.Admin, _ []string) error {
			found, err := of.Workers(ctx)
			if err != nil {
				return err
			}
			var workers []worker
			for _, w := range found {
				workers = append(workers, worker{w.Name, w.Alive, moment(w.StartedAt), moment(w.SeenAt), moment(w.StoppedAt), w.Leases, w.Messages, w.Streams, w})
			}
			return list(a.render, "WORKER, STATE, FIRST SEEN, LEASES, MESSAGES, STREAMS", workers, "No worker has claimed anything yet.")
		})
}
