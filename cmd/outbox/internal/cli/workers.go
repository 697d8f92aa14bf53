package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/incursa/watermill-outbox/admin"
)

// A worker is a row of workers.
type worker struct {
	Name      string `json:"name"`
	State     string `json:"state"` // lives, stopped or silent; empty without heartbeats
	StartedAt string `json:"started_at"`
	SeenAt    string `json:"seen_at,omitempty"`
	Claims    int    `json:"claims"`
	Messages  int    `json:"messages"`
	Streams   int    `json:"streams"`

	from admin.Worker
}

func newWorker(w admin.Worker) worker {
	state := "silent"
	switch {
	case w.Lives:
		state = "lives"
	case !w.StoppedAt.IsZero():
		state = "stopped"
	case w.SeenAt.IsZero():
		state = ""
	}
	return worker{w.Name, state, moment(w.StartedAt), moment(w.SeenAt), w.Claims, w.Messages, w.Streams, w}
}

func (w worker) cells() []string {
	return []string{w.Name, w.State, clock(w.from.StartedAt), clock(w.from.SeenAt), number(w.Claims), number(w.Messages), number(w.Streams)}
}

func (a *app) workersCommand() *cobra.Command {
	return a.onAdmin(&cobra.Command{Use: "workers", Short: "List workers and what they hold, those that live first", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, of *admin.Admin, _ []string) error {
			found, err := of.Workers(ctx)
			if err != nil {
				return err
			}
			var workers []worker
			for _, w := range found {
				workers = append(workers, newWorker(w))
			}
			return list(a.render, "WORKER, STATE, STARTED, SEEN, CLAIMS, MESSAGES, STREAMS", workers, "No worker has claimed anything yet.")
		})
}
