package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

// A stream is one that is blocked.
type stream struct {
	Topic     string `json:"topic"`
	StreamKey string `json:"stream_key"`
	Waiting   int    `json:"waiting"`
	Since     string `json:"since"`
	Head      string `json:"head"`
	LastError string `json:"last_error"`

	from outbox.BlockedStream
}

func (s stream) cells() []string {
	return []string{s.Topic, s.StreamKey, upTo(s.Waiting), clock(s.from.Since), s.Head, short(s.LastError)}
}

func (a *app) streamCommand() *cobra.Command {
	return group("stream", "Ordered streams that are blocked by a message that has failed", a.streamListCommand(), a.streamResumeCommand())
}

func (a *app) streamListCommand() *cobra.Command {
	var params outbox.ListParams
	c := a.action(&cobra.Command{Use: "list", Short: "List blocked streams, and what blocks them", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			o, err := db.outbox()
			if err != nil {
				return err
			}
			blocked, err := o.BlockedStreams(ctx, params)
			if err != nil {
				return err
			}
			var streams []stream
			for _, b := range blocked {
				streams = append(streams, stream{b.Topic, b.StreamKey, b.Waiting, moment(b.Since), b.Head.String(), b.LastError, b})
			}
			return list(a.render, "TOPIC, STREAM, WAITING, SINCE, BLOCKED BY, ITS ERROR", streams, "No stream is blocked.")
		})
	c.Flags().StringVar(&params.Topic, "topic", "", "only streams of this topic")
	limited(c, &params.Limit, 100, "the most streams to list, 1 to 1,000")
	return c
}

func (a *app) streamResumeCommand() *cobra.Command {
	var skip, discard bool
	c := a.onAdmin(&cobra.Command{Use: "resume TOPIC STREAM", Short: "Resume a blocked stream", Args: arguments(cobra.ExactArgs(2)),
		Long: `Resume a blocked stream: the message that has failed is tried again, with all its attempts.
With --skip the stream continues after it, and it stays a dead letter.
With --discard everything that waits in the stream becomes a dead letter, too.`},
		func(ctx context.Context, of *admin.Admin, args []string) (err error) {
			params := admin.StreamParams{Topic: args[0], StreamKey: args[1], By: a.actor()}
			switch {
			case discard:
				if err := a.confirm(ctx, "End everything that waits in stream %q of %q?", args[1], args[0]); err != nil {
					return err
				}
				n, err := of.DiscardStream(ctx, params)
				if err != nil {
					return err
				}
				return a.done("%s became dead letters.", n, "message", "messages")
			case skip:
				if err := a.confirm(ctx, "Continue stream %q of %q after the message that has failed?", args[1], args[0]); err != nil {
					return err
				}
				err = of.SkipHead(ctx, params)
			default:
				err = of.RequeueStream(ctx, params)
			}
			if err != nil {
				return err
			}
			return a.render.say("The stream goes on.")
		})
	c.Flags().BoolVar(&skip, "skip", false, "continue after the message that has failed")
	c.Flags().BoolVar(&discard, "discard", false, "end everything that waits in the stream")
	c.MarkFlagsMutuallyExclusive("skip", "discard")
	return c
}

// done says how many were done.
func (a *app) done(format string, n int, one, many string) error {
	return a.render.result(struct {
		Done int `json:"done"`
	}{n}, fmt.Sprintf(format, counted(n, one, many)))
}
