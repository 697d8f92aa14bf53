package outbox

import (
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/limits"
)

// SubscriberConfig configures a Subscriber.
type SubscriberConfig struct {
	// Dialect is the database: SQLServer{}, Postgres{} or SQLite{}. Required.
	Dialect Dialect

	// Schema and Table name the outbox. Default to those of Config.
	Schema, Table string

	// Store names this outbox among many, as in Config. Defaults to none.
	Store string

	// ConsumerGroup makes the Subscriber read the log instead of the queue: every group receives every message that was
	// published with LogOnly or QueueAndLog, in the order of the log, one at a time. One subscription of a group to a
	// topic is active; others stand by. A nack delivers the same message again after Backoff, which holds up the group, until
	// MaxAttempts; see OnGroupFailure. A new group begins with the oldest message. A Sequencer must run. At most 255 UTF-16
	// units.
	//
	// Of the other fields, MaxInFlightBytes (of a read), LeaseDuration, MaxHandlerTime, MaxAttempts, OnGroupFailure,
	// Backoff, PollInterval, MaxPollInterval, Wakeups, DrainTimeout, HandlerLog, Hooks and Janitor apply. Defaults to none: the queue.
	ConsumerGroup string

	// OnGroupFailure says what becomes of a message that has no attempts left, or failed with Permanent, in a consumer group:
	// DeadLetter or Block. Defaults to DeadLetter.
	OnGroupFailure FailurePolicy

	// WorkerName is written to the rows that this Subscriber ends (OBX-023). Defaults to the host's name and process id.
	WorkerName string

	// MaxInFlight is the most messages that are claimed and not yet acked or nacked, over all topics: the handlers that
	// run at once. A quarter of it is kept for topics that have none out, so that a busy or stuck topic starves no other.
	// Defaults to 100.
	MaxInFlight int

	// MaxInFlightPerTopic is the same for each topic. Defaults to MaxInFlight.
	MaxInFlightPerTopic int

	// MaxInFlightBytes is the most payload and headers, in bytes, of messages that are claimed and not yet settled. A message
	// that is larger than half of it is claimed while less than the other half is out. A quarter is kept for topics that
	// have none out. Defaults to 64 MB.
	MaxInFlightBytes int64

	// AllowCompeting allows a second live subscription to a topic in this process, on the same *sql.DB and table: each message
	// comes to one of them. Without it the second is refused with ErrCompeting. Other processes always compete. It does not
	// apply to consumer groups, where the second stands by. Defaults to false.
	AllowCompeting bool

	// LeaseDuration is how long a message stays claimed when its worker dies (OBX-014). The leases of slow handlers are
	// renewed, so it need not cover them. 10 s to 300 s are sensible (OBX-110). Defaults to 30 s.
	LeaseDuration time.Duration

	// MaxHandlerTime is how long a handler may take. Then the context of its message ends; a handler that has not answered
	// DrainTimeout after that is left behind: the message goes back with an attempt spent, Hooks.OnHandlerTimeout is called,
	// and a late answer changes nothing. -1 means any time. Defaults to 1 h.
	MaxHandlerTime time.Duration

	// MaxAttempts is the number of deliveries after which a message that fails is failed for good (OBX-058, OBX-059).
	// -1 means unlimited. Defaults to 10.
	MaxAttempts int

	// OnStreamFailure says what becomes of a stream, of messages with a StreamKey, when one of them has no attempts left or
	// failed with Permanent: Block or DeadLetter. Defaults to Block.
	OnStreamFailure FailurePolicy

	// MaxStreamRun is the most messages of one stream that a claim takes, to be handed out one after the other, 1 to 1,000.
	// It takes fewer while many streams wait. Defaults to 32.
	MaxStreamRun int

	// PipelineStreams hands out all claimed messages of a stream at once, in order, instead of waiting for each ack. Use it only with
	// a handler that preserves the order itself, like forwarder.Forwarder: it must receive messages in sequence, finish none before
	// its predecessors in the stream, and after nacking one nack those behind it. No other worker can claim the stream until all
	// are answered. Not for topics with several subscriptions. Defaults to false.
	PipelineStreams bool

	// Backoff says how long a message waits after a nack (OBX-057). Defaults to 1, 2, 4 … 60 s:
	// ExponentialBackoff(time.Second, time.Minute).
	Backoff Backoff

	// PollInterval is the pause after a claim that found nothing. It doubles each time (OBX-116), up to MaxPollInterval.
	// While there is work, and on a wake-up, there is no pause. Defaults to 5 ms.
	PollInterval time.Duration

	// MaxPollInterval is the longest pause between claims. Defaults to 500 ms.
	MaxPollInterval time.Duration

	// ClaimTimeout is how long a claim may take, with the wait for a connection of the pool, before it has failed.
	// Defaults to half of LeaseDuration, 500 ms to 30 s.
	ClaimTimeout time.Duration

	// Wakeups carries topics of which other processes have published messages, from wake/pgx for example. Wake-ups of
	// this process need no channel. An empty string means all topics. Defaults to none.
	Wakeups <-chan string

	// DrainTimeout is how long Close lets handlers finish. Then the contexts of their messages end and the messages are
	// released, for another worker to deliver again. Defaults to 30 s.
	DrainTimeout time.Duration

	// DeleteOnAck deletes acknowledged rows at once instead of keeping them. Defaults to false.
	DeleteOnAck bool

	// Janitor says how long what has ended is kept, in the queue, the log, joins and inbox, and when it is purged. Disabled
	// switches it off. Defaults to 7 days for all, and for ever for failed messages.
	Janitor JanitorConfig

	// UnhandledAfter is how long due messages may wait on a topic that this Subscriber is not subscribed to before it
	// warns (OBX-049); they stay in the table. -1 never looks. Defaults to 1 min.
	UnhandledAfter time.Duration

	// HandlerLog is the level of the line that is logged for each message handed to its handler (OBX-098).
	// slog.LevelInfo, slog.LevelDebug, watermill.LevelTrace or LogOff. Defaults to slog.LevelInfo.
	HandlerLog slog.Level

	// Hooks are called as things happen. Defaults to none.
	Hooks Hooks
}

// LogOff as SubscriberConfig.HandlerLog logs no line.
const LogOff slog.Level = math.MaxInt

// FailurePolicy says what becomes of a stream, or of a consumer group, when one of its messages has failed for good.
type FailurePolicy int

// The policies. With Block a stream delivers nothing until RequeueStream, SkipHead or DiscardStream lets it go on, and a group
// stays at the message, which is delivered again and again; the log says so at each attempt. With DeadLetter the message is
// kept with its reason, and the next one follows: see Outbox.Failed and Outbox.GroupDeadLetters.
const (
	Block      FailurePolicy = 1
	DeadLetter FailurePolicy = 2
)

func (p FailurePolicy) validate(field string) error {
	if p != Block && p != DeadLetter {
		return badField(field, "%d is neither Block nor DeadLetter", int(p))
	}
	return nil
}

// Never switches a periodic duty off.
const never time.Duration = -1

func (c *SubscriberConfig) setDefaults() {
	setDefault(&c.MaxInFlight, 100)
	setDefault(&c.MaxInFlightPerTopic, c.MaxInFlight)
	setDefault(&c.MaxInFlightBytes, 64<<20)
	setDefault(&c.LeaseDuration, limits.DefaultLease)
	setDefault(&c.ClaimTimeout, limits.Claiming(c.LeaseDuration))
	setDefault(&c.MaxHandlerTime, time.Hour)
	setDefault(&c.MaxAttempts, 10)
	setDefault(&c.OnGroupFailure, DeadLetter)
	setDefault(&c.OnStreamFailure, Block)
	setDefault(&c.MaxStreamRun, defaultRun)
	setDefault(&c.PollInterval, 5*time.Millisecond)
	setDefault(&c.MaxPollInterval, max(500*time.Millisecond, c.PollInterval))
	setDefault(&c.DrainTimeout, 30*time.Second)
	setDefault(&c.UnhandledAfter, time.Minute)
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *SubscriberConfig) validate() error {
	switch {
	case c.MaxInFlight < 1:
		return badField("SubscriberConfig.MaxInFlight", "%d is less than 1", c.MaxInFlight)
	case c.MaxInFlightPerTopic < 1 || c.MaxInFlightPerTopic > c.MaxInFlight:
		return badField("SubscriberConfig.MaxInFlightPerTopic", "%d is not between 1 and MaxInFlight, %d", c.MaxInFlightPerTopic, c.MaxInFlight)
	case c.MaxInFlightBytes < 1:
		return badField("SubscriberConfig.MaxInFlightBytes", "%d is less than 1", c.MaxInFlightBytes)
	case c.MaxAttempts < 1 && c.MaxAttempts != -1:
		return badField("SubscriberConfig.MaxAttempts", "%d is neither positive nor -1 for unlimited", c.MaxAttempts)
	case c.PollInterval < 0:
		return badField("SubscriberConfig.PollInterval", "is negative")
	case c.ClaimTimeout < 0:
		return badField("SubscriberConfig.ClaimTimeout", "is negative")
	case c.MaxHandlerTime < 0 && c.MaxHandlerTime != never:
		return badField("SubscriberConfig.MaxHandlerTime", "is negative; -1 means any time")
	case c.MaxStreamRun < 1 || c.MaxStreamRun > maxBatch:
		return badField("SubscriberConfig.MaxStreamRun", "%d is not between 1 and %d", c.MaxStreamRun, maxBatch)
	case c.MaxPollInterval < c.PollInterval:
		return badField("SubscriberConfig.MaxPollInterval", "%v is less than PollInterval, %v", c.MaxPollInterval, c.PollInterval)
	case c.DrainTimeout < 0:
		return badField("SubscriberConfig.DrainTimeout", "is negative")
	case c.UnhandledAfter < 0 && c.UnhandledAfter != never:
		return badField("SubscriberConfig.UnhandledAfter", "is negative; -1 means never")
	case !slices.Contains([]slog.Level{slog.LevelInfo, slog.LevelDebug, watermill.LevelTrace, LogOff}, c.HandlerLog):
		return badField("SubscriberConfig.HandlerLog", "%v is none of slog.LevelInfo, slog.LevelDebug, watermill.LevelTrace and LogOff", c.HandlerLog)
	}
	if err := c.OnGroupFailure.validate("SubscriberConfig.OnGroupFailure"); err != nil {
		return err
	}
	if err := validateKey("SubscriberConfig.ConsumerGroup", c.ConsumerGroup); err != nil {
		return err
	}
	return validateLease("SubscriberConfig.LeaseDuration", c.LeaseDuration)
}
