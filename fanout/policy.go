package fanout

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/join"
)

// A Policy says which messages of the log go where.
type Policy struct {
	// Name names the policy and its cursor in the database: a policy under another name starts over. Required.
	Name string

	// Version orders the policies deployed under one name: raise it when the policy changes. A dispatcher with a higher
	// version takes the policy over at once from one with a lower version, which then stands by; messages published after
	// that go where the newer one says. Of dispatchers that differ at the same version, the one that has the policy keeps
	// it, and the others log an error. Defaults to 0.
	Version int64

	// Topics is a path.Match pattern for the topics to send on, such as "orders", "orders.*" or "orders/*": a star matches
	// anything but a slash. Defaults to all topics.
	Topics string

	// Tenant restricts the policy to the messages of one tenant. Defaults to all.
	Tenant Tenant

	// Match restricts the policy to messages for which it returns true. It must return the same for a message every time.
	// Defaults to all.
	Match func(msg outbox.LogMessage) bool

	// Destinations are where each message is sent. Required.
	Destinations []Destination

	// Cadence collects messages and sends them at intervals. Defaults to sending at once.
	Cadence Cadence

	// Join makes the copies in topics of the same outbox steps of a join, in the transaction tx that inserts them, in which
	// it may also start that join. It is called again if that transaction is run again. It returns false for a message whose
	// copies are no steps. An error holds up the policy. If the join has ended, is full or does not exist, that is logged,
	// and the copies are sent without it. Defaults to none.
	Join func(ctx context.Context, tx outbox.Executor, source outbox.LogMessage) (id join.ID, ok bool, err error)
}

// A Tenant is identified by a header of its messages.
type Tenant struct {
	Header, Value string
}

// A Cadence divides time into intervals, by the database's clock, starting in 1970. The messages logged in an interval are
// its slice, which is due at the interval's end, or up to Jitter later. Nothing is sent for an empty slice. Missed slices
// are sent together.
//
// Sending each slice once needs no state besides the cursor: a message's slice follows from when it was logged.
type Cadence struct {
	// Every is the length of an interval, at least 1 ms. Defaults to none.
	Every time.Duration

	// Jitter spreads the slices of different policies: each slice is delayed by up to Jitter, by an amount derived from
	// policy and slice. At most Every. Defaults to none.
	Jitter time.Duration
}

// A Destination is a topic of the same outbox, of an outbox in another database, or of a publisher. Make one with ToTopic,
// ToStore and ToPublisher.
type Destination struct {
	name, topic string
	store       *outbox.Outbox
	publisher   message.Publisher
	kind        kind
}

type kind int

const (
	none kind = iota
	toTopic
	toStore
	toPublisher
)

// ToTopic is a topic in the queue of the same outbox.
func ToTopic(topic string) Destination { return Destination{name: topic, topic: topic, kind: toTopic} }

// ToStore is a topic of an outbox in another database. The name is part of the ids of its messages: never change it.
func ToStore(name string, store *outbox.Outbox, topic string) Destination {
	return Destination{name: name, topic: topic, store: store, kind: toStore}
}

// ToPublisher is a topic of a publisher, whose Publish must return only once the broker has the messages. The name is part
// of the ids of its messages: never change it. The caller closes the publisher, after the Dispatcher.
func ToPublisher(name string, publisher message.Publisher, topic string) Destination {
	return Destination{name: name, topic: topic, publisher: publisher, kind: toPublisher}
}

// group is the consumer group whose place in the log is the policy's cursor.
func (p *Policy) group() string { return "fanout:" + p.Name }

// shape is a hash of where a policy sends which messages, except for what its functions decide: it tells different policies
// with the same name apart.
func (p *Policy) shape() int64 {
	hash := fnv.New32a()
	_, _ = fmt.Fprintf(hash, "%q %q %q %v %v %t %t", p.Topics, p.Tenant.Header, p.Tenant.Value, p.Cadence.Every, p.Cadence.Jitter, p.Match != nil, p.Join != nil)
	for i := range p.Destinations { // a hash never fails
		d := &p.Destinations[i]
		_, _ = fmt.Fprintf(hash, " %d %q %q", d.kind, d.name, d.topic)
	}
	return int64(hash.Sum32())
}

// concerns reports whether messages of a topic may match.
func (p *Policy) concerns(topic string) bool {
	matched, err := path.Match(p.Topics, topic)
	return p.Topics == "" || err == nil && matched // a bad pattern was refused by validate
}

func (p *Policy) matches(msg *outbox.LogMessage) bool {
	return p.concerns(msg.Topic) &&
		(p.Tenant == Tenant{} || msg.Headers[p.Tenant.Header] == p.Tenant.Value) &&
		(p.Match == nil || p.Match(*msg))
}

// validate names the policy in its errors by index and name.
func (p *Policy) validate(i int) error {
	bad := func(part, format string, args ...any) error {
		return field.Bad(fmt.Sprintf("Config.Policies[%d].%s", i, part), "(%q) %s", p.Name, fmt.Sprintf(format, args...))
	}
	if p.Name == "" {
		return field.Bad(fmt.Sprintf("Config.Policies[%d].Name", i), "is empty; its cursor needs a name")
	}
	if problem := limits.Key(p.group()); problem != "" {
		return bad("Name", "with %q before it %s", "fanout:", problem)
	}
	if _, err := path.Match(p.Topics, ""); err != nil {
		return bad("Topics", "the pattern %q does not compile: %v", p.Topics, err)
	}
	switch c := p.Cadence; {
	case p.Version < 0:
		return bad("Version", "%d is negative", p.Version)
	case p.Tenant != Tenant{} && p.Tenant.Header == "":
		return bad("Tenant", "has a value and no header to find it in")
	case p.Tenant != Tenant{} && p.Tenant.Value == "":
		return bad("Tenant", "has the header %q and no value: name the tenant", p.Tenant.Header)
	case c.Every < 0 || c.Every > 0 && c.Every < time.Millisecond:
		return bad("Cadence.Every", "%v is less than 1 ms", c.Every)
	case c.Jitter < 0 || c.Jitter > c.Every:
		return bad("Cadence.Jitter", "%v is not between 0 and Every, %v", c.Jitter, c.Every)
	case len(p.Destinations) == 0:
		return bad("Destinations", "is empty; where do the messages go?")
	}
	names := map[string]bool{}
	topics := false
	for d := range p.Destinations {
		to := &p.Destinations[d]
		part := fmt.Sprintf("Destinations[%d]", d)
		if err := to.validate(); err != nil {
			return bad(part, "%v", err)
		}
		if names[to.name] {
			return bad(part, "%q is there twice", to.name)
		}
		names[to.name] = true
		topics = topics || to.kind == toTopic
	}
	if p.Join != nil && !topics {
		return bad("Join", "is set and no destination is a topic of the same outbox: only those become steps")
	}
	return nil
}

func (d *Destination) validate() error {
	switch {
	case d.kind == none:
		return errors.New("is empty; make it with ToTopic, ToStore or ToPublisher")
	case d.kind == toStore && d.store == nil:
		return fmt.Errorf("%q has no store: it is nil", d.name)
	case d.kind == toPublisher && d.publisher == nil:
		return fmt.Errorf("%q has no publisher: it is nil", d.name)
	case d.topic == "":
		return fmt.Errorf("%q has no topic", d.name)
	case d.name == "":
		return fmt.Errorf("the destination with the topic %q has no name", d.topic)
	}
	if problem := limits.Key(d.topic); problem != "" && d.kind != toPublisher {
		return fmt.Errorf("the topic %q %s", d.topic, problem)
	}
	return nil
}
