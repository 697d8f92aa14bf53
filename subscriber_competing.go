package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"

	"github.com/incursa/watermill-outbox/internal/flow"
)

// competing are the live subscriptions of this process to topics of the queue. A second subscription to a topic would get
// only some of the messages, which is rarely intended.
var competing struct {
	mu   sync.Mutex
	live map[contest][]*contender
}

// A contest is what subscriptions compete for.
type contest struct {
	db           *sql.DB
	table, topic string
}

// A contender is a subscription with the channels that end it.
type contender struct{ cancelled, closing <-chan struct{} }

func (c *contender) ended() bool { return flow.IsClosed(c.cancelled) || flow.IsClosed(c.closing) }

func (o *Outbox) contest(topic string) contest {
	return contest{o.db, o.engine.Names.Qualified(o.engine.Dialect.Traits().Table), topic}
}

// servedHere says whether a topic has a live subscription in this process, by a Subscriber of its own or in a forwarder.
func (o *Outbox) servedHere(topic string) bool {
	competing.mu.Lock()
	defer competing.mu.Unlock()
	return slices.ContainsFunc(competing.live[o.contest(topic)], func(c *contender) bool { return !c.ended() })
}

// compete registers a subscription until leave is called. It returns ErrCompeting if there are others, unless the config
// allows them.
func (s *Subscriber) compete(ctx context.Context, topic string) (leave func(), err error) {
	key := s.outbox.contest(topic)
	c := &contender{ctx.Done(), s.closing}
	competing.mu.Lock()
	defer competing.mu.Unlock()
	others := slices.ContainsFunc(competing.live[key], func(c *contender) bool { return !c.ended() })
	if others && !s.config.AllowCompeting {
		return nil, fmt.Errorf("subscribe to %q: %w", topic, ErrCompeting)
	}
	if competing.live == nil {
		competing.live = map[contest][]*contender{}
	}
	competing.live[key] = append(competing.live[key], c)
	return func() {
		competing.mu.Lock()
		defer competing.mu.Unlock()
		left := slices.DeleteFunc(competing.live[key], func(other *contender) bool { return other == c })
		if competing.live[key] = left; len(left) == 0 {
			delete(competing.live, key)
		}
	}, nil
}
