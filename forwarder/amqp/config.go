package amqp

import (
	"crypto/tls"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/incursa/watermill-outbox/internal/field"
)

// Config configures a Publisher.
type Config struct {
	// URL is where the broker is: amqp://user:password@host:port/vhost, or amqps:// for TLS. Required.
	URL string

	// Route maps the forwarder's destination to an exchange and a routing key. Defaults to the default exchange, which
	// routes to the queue of that name.
	Route func(topic string) (exchange, routingKey string)

	// DeclareQueues are the names of durable queues to declare on each connection. Defaults to none: others must declare
	// them, and messages are refused until they do.
	DeclareQueues []string

	// Topology is declared on each connection, for more than plain queues. Defaults to nothing.
	Topology Topology

	// Unroutable says what happens to a message that no queue has taken. Defaults to Fail.
	Unroutable Unroutable

	// MaxPayload is the most bytes of a payload; a larger one fails for good without being sent. Defaults to 0: the broker
	// decides (128 MiB in RabbitMQ 3, 16 MiB in RabbitMQ 4), with the same result.
	MaxPayload int

	// ConfirmTimeout is how long Publish waits without any confirmation. Defaults to 30 s.
	ConfirmTimeout time.Duration

	// ConnectTimeout bounds each attempt to connect. Defaults to 10 s.
	ConnectTimeout time.Duration

	// Heartbeat is the AMQP heartbeat interval, 1 s to 65,535 s; one in the URL takes precedence. Defaults to 10 s.
	Heartbeat time.Duration

	// TLS is for amqps. Defaults to the system's certificates and the host of the URL.
	TLS *tls.Config

	// ConnectionName is what RabbitMQ shows. Defaults to the program's name and process id.
	ConnectionName string
}

// Unroutable is what happens to a message that no queue has taken.
type Unroutable int

// The choices.
const (
	// Fail refuses the message: an attempt is spent, and it is published again until the attempts are spent.
	Fail Unroutable = iota

	// Drop counts the message as published, as is usual for events that may have no subscribers. A queue that is bound later
	// does not get earlier messages.
	Drop
)

// Topology is declared before anything is published. All of it is durable.
type Topology struct {
	Exchanges []Exchange
	Queues    []Queue
	Bindings  []Binding
}

// An Exchange is to be declared.
type Exchange struct {
	Name string
	Kind string // direct, fanout, topic or headers
	Args map[string]any
}

// A Queue is to be declared.
type Queue struct {
	Name string
	Args map[string]any // as "x-queue-type": "quorum"
}

// A Binding binds a queue to an exchange.
type Binding struct {
	Queue, Exchange, RoutingKey string
	Args                        map[string]any
}

func (c *Config) setDefaults() {
	if c.Route == nil {
		c.Route = func(topic string) (exchange, routingKey string) { return "", topic }
	}
	field.Default(&c.ConfirmTimeout, 30*time.Second)
	field.Default(&c.ConnectTimeout, 10*time.Second)
	field.Default(&c.Heartbeat, 10*time.Second)
	field.Default(&c.ConnectionName, fmt.Sprintf("%s, process %d", filepath.Base(os.Args[0]), os.Getpid()))
}

// maxHeartbeat is the longest that AMQP can express.
const maxHeartbeat = math.MaxUint16 * time.Second

// maxShort is how long a name may be in AMQP.
const maxShort = 255

func (c *Config) validate() error {
	// The parser's error contains the password.
	if _, err := amqp091.ParseURI(c.URL); err != nil {
		return field.Bad("Config.URL", "is not of the form amqp://user:password@host:port/vhost")
	}
	switch {
	case c.Unroutable != Fail && c.Unroutable != Drop:
		return field.Bad("Config.Unroutable", "%d is neither Fail nor Drop", c.Unroutable)
	case c.MaxPayload < 0:
		return field.Bad("Config.MaxPayload", "%d is negative", c.MaxPayload)
	case c.ConfirmTimeout < 0:
		return field.Bad("Config.ConfirmTimeout", "is negative")
	case c.ConnectTimeout < 0:
		return field.Bad("Config.ConnectTimeout", "is negative")
	case c.Heartbeat < time.Second || c.Heartbeat > maxHeartbeat:
		return field.Bad("Config.Heartbeat", "%v is not between 1s and %v", c.Heartbeat, maxHeartbeat)
	}
	for i, name := range c.DeclareQueues {
		if err := validateName(fmt.Sprintf("Config.DeclareQueues[%d]", i), name); err != nil {
			return err
		}
	}
	return c.Topology.validate()
}

func (t *Topology) validate() error {
	for i, e := range t.Exchanges {
		if err := validateName(fmt.Sprintf("Config.Topology.Exchanges[%d].Name", i), e.Name); err != nil {
			return err
		}
		if e.Kind == "" {
			return field.Bad(fmt.Sprintf("Config.Topology.Exchanges[%d].Kind", i), "is empty; it is direct, fanout, topic or headers")
		}
		if err := validateArgs(fmt.Sprintf("Config.Topology.Exchanges[%d].Args", i), e.Args); err != nil {
			return err
		}
	}
	for i, q := range t.Queues {
		if err := validateName(fmt.Sprintf("Config.Topology.Queues[%d].Name", i), q.Name); err != nil {
			return err
		}
		if err := validateArgs(fmt.Sprintf("Config.Topology.Queues[%d].Args", i), q.Args); err != nil {
			return err
		}
	}
	for i, b := range t.Bindings {
		binding := fmt.Sprintf("Config.Topology.Bindings[%d]", i)
		if err := validateName(binding+".Queue", b.Queue); err != nil {
			return err
		}
		if err := validateName(binding+".Exchange", b.Exchange); err != nil {
			return err
		}
		if len(b.RoutingKey) > maxShort {
			return field.Bad(binding+".RoutingKey", "has %d bytes; %d are the most", len(b.RoutingKey), maxShort)
		}
		if err := validateArgs(binding+".Args", b.Args); err != nil {
			return err
		}
	}
	return nil
}

func validateName(at, name string) error {
	switch {
	case name == "":
		return field.Bad(at, "is empty")
	case len(name) > maxShort:
		return field.Bad(at, "has %d bytes; %d are the most", len(name), maxShort)
	}
	return nil
}

func validateArgs(at string, args map[string]any) error {
	if err := amqp091.Table(args).Validate(); err != nil {
		return field.Bad(at, "%v", err)
	}
	return nil
}
