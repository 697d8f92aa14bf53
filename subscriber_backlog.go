package outbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// A backlog checks the topics that have due messages, calls the hook, and logs an error about topics without a handler here.
type backlog struct {
	outbox     *Outbox
	subscribed func() []string
	after      time.Duration // how long messages may wait on a topic before it is an error

	reported map[string]bool // topics with a backlog at the last look
	warned   map[string]bool // unhandled topics at the last look
}

var errUnhandled = errors.New("no handler for these topics")

// look reports topics whose messages wait while no Subscriber of this process handles them. They may be meant for another
// process, so they stay where they are. There may be thousands of topics: one line names the first, and is repeated only
// for new ones.
func (b *backlog) look(ctx context.Context) error {
	topics, err := b.outbox.Topics(ctx)
	if err != nil {
		return err
	}
	topics = b.withEmpty(topics)
	var unhandled []TopicBacklog
	for i := range topics {
		t := &topics[i]
		if t.Handled = b.outbox.servedHere(t.Topic); !t.Handled && t.PausedSince.IsZero() && t.Waiting > 0 && t.Age >= b.after {
			unhandled = append(unhandled, *t)
		}
	}
	b.warn(unhandled)
	b.outbox.config.Hooks.backlog(topics)
	return nil
}

// warn logs a line if there are topics that the last look did not find.
func (b *backlog) warn(unhandled []TopicBacklog) {
	before := b.warned
	b.warned = make(map[string]bool, len(unhandled))
	var fresh []string
	waiting, oldest := 0, time.Duration(0)
	for _, t := range unhandled {
		b.warned[t.Topic] = true
		waiting, oldest = waiting+t.Waiting, max(oldest, t.Age)
		if !before[t.Topic] {
			fresh = append(fresh, t.Topic)
		}
	}
	if len(fresh) == 0 {
		return
	}
	const named = 5
	slices.Sort(fresh)
	names := strings.Join(fresh[:min(named, len(fresh))], ", ")
	if len(fresh) > named {
		names += ", …"
	}
	b.outbox.logger.Error("Messages wait on topics without a handler here; subscribe to them, or check the process that should",
		errUnhandled, watermill.LogFields{"topics": len(unhandled), "new": len(fresh), "names": names, "waiting": waiting, "age": oldest.String()})
}

// withEmpty adds topics without a backlog that are subscribed, or had one at the last look, so that gauges fall to 0.
func (b *backlog) withEmpty(topics []TopicBacklog) []TopicBacklog {
	known := b.subscribed()
	for topic := range b.reported {
		known = append(known, topic)
	}
	b.reported = make(map[string]bool, len(topics))
	for _, t := range topics {
		b.reported[t.Topic] = true
	}
	slices.Sort(known)
	for _, topic := range slices.Compact(known) {
		if !b.reported[topic] {
			topics = append(topics, TopicBacklog{Store: b.outbox.config.Store, Topic: topic})
		}
	}
	return topics
}
