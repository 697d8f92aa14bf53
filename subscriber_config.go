package outbox

import (
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// SubscriberConfig configures a Subscriber.
type SubscriberConfig struct {
	// Dialect is the database: SQLServer{}, Postgres{} or SQLite{}. Required.
	Dialect Dialect

	// Schema and Table name the outbox. Default to dbo and Outbox on SQL Server,
	// public and outbox on PostgreSQL, and outbox on SQLite, where Schema must be empty.
	Schema, Table string

	// Store names this outbox among several, as in Config. Defaults to none.
	Store string

	// ConsumerGroup makes the Subscriber read the log instead of the queue: every group receives every message that was
	// published with LogOnly or QueueAndLog, in the order of the log, one at a time. Only one subscription of a group to a
	// topic is active; others stand by. A nacked message is delivered again after Backoff, up to MaxAttempts, and holds up
	// the group until then; see OnGroupFailure. A new group begins with the oldest message. A Sequencer must run. At most 255
	// UTF-16 units.
	//
	// Of the other fields, MaxInFlightBytes (of a read), LeaseDuration, MaxHandlerTime, MaxAttempts, OnGroupFailure,
	// Backoff, PollInterval, MaxPollInterval, Wakeups, DrainTimeout, HandlerLog, Hooks and Janitor apply. Defaults to none: the queue.
	ConsumerGroup string

	// OnGroupFailure says what a consumer group does with a message that has no attempts left or failed with Permanent:
	// DeadLetter or Block. Defaults to DeadLetter.
	OnGroupFailure FailurePolicy

	// WorkerName is written to the rows of messages that this Subscriber ends, and names the worker whose heartbeats it writes. Two
	// processes with one name count as one worker. At most 100 UTF-16 units. Defaults to the host's name and process id.
	WorkerName string

	// MaxInFlight is the most messages that are claimed and not yet acked or nacked, over all topics: the handlers that
	// run at once. 1 to 100,000. A quarter of it is reserved for topics that have none in flight, so that a busy or stuck topic does not
	// starve others. Defaults to 100.
	MaxInFlight int

	// MaxInFlightPerTopic is the same for each topic. Defaults to MaxInFlight.
	MaxInFlightPerTopic int

	// MaxInFlightBytes is the most payload and headers, in bytes, of messages that are claimed and not yet settled. A message
	// larger than half of it is claimed once no more than half of it is in flight. A quarter is reserved for topics that have
	// none in flight. Defaults to 64 MB.
	MaxInFlightBytes int64

	// AllowCompeting allows a second live subscription to a topic in this process, on the same *sql.DB and table: each message
	// goes to one of them. Without it, the second fails with ErrCompeting. Other processes always compete. It does not apply
	// to consumer groups, where the second stands by. Defaults to false.
	AllowCompeting bool

	// LeaseDuration is how long a message stays claimed after its worker has died, 1 ms to 24 h. The leases of slow handlers
	// are renewed, so it need not cover them. 10 s to 300 s are sensible. Defaults to 30 s.
	LeaseDuration time.Duration

	// MaxHandlerTime is how long a handler may take. Then its message's context ends. If the handler has not acked or nacked
	// DrainTimeout later, the message is taken from it, with an attempt spent: Hooks.OnHandlerTimeout is called, and a late
	// ack or nack changes nothing. -1 means no limit. Defaults to 1 h.
	MaxHandlerTime time.Duration

	// MaxAttempts is the number of deliveries after which a failing message has failed for good. -1 means unlimited.
	// Defaults to 10.
	MaxAttempts int

	// OnStreamFailure says what happens to a stream when one of its messages has no attempts left or failed with Permanent:
	// Block or DeadLetter. Defaults to Block.
	OnStreamFailure FailurePolicy

	// MaxStreamRun is the most messages of one stream that a claim takes, to be handed out one after the other, 1 to 1,000.
	// It takes fewer while many streams wait. Defaults to 32.
	MaxStreamRun int

	// StreamAffinity is for how long a worker leaves a ready stream to the worker whose share of all streams it is in, while it has
	// others to take: streams then tend to stay with the same worker. It never waits: a worker with room takes whatever is ready. At
	// most 24 h; -1 means that streams have no preferred worker. Defaults to 1 s.
	StreamAffinity time.Duration

	// PipelineStreams hands out all claimed messages of a stream at once, in order, instead of waiting for each ack. Use it only
	// with a handler that preserves the order itself, like forwarder.Forwarder: it must receive messages in sequence, finish none
	// before its predecessors in the stream, and after nacking one nack those behind it. No other worker can claim the stream
	// until all are acked or nacked. Do not use it for topics with several subscriptions. Defaults to false.
	PipelineStreams bool

	// Backoff says how long a message waits after a nack. Defaults to 1, 2, 4 … 60 s:
	// ExponentialBackoff(time.Second, time.Minute).
	Backoff Backoff

	// PollInterval is the pause after a claim that found nothing. It doubles each time, up to MaxPollInterval. There is no
	// pause while there is work, and a wake-up ends it. Defaults to 5 ms.
	PollInterval time.Duration

	// MaxPollInterval is the longest pause between claims. Defaults to 500 ms.
	MaxPollInterval time.Duration

	// ClaimTimeout is how long a claim may take, including the wait for a connection, before it fails, up to 24 h.
	// Defaults to half of LeaseDuration, but at least 500 ms and at most 30 s.
	ClaimTimeout time.Duration

	// Wakeups carries the topics that other processes publish to, from wake/pgx for example. Wake-ups of this process need no
	// channel. An empty string means all topics. Defaults to none.
	Wakeups <-chan string

	// DrainTimeout is how long Close lets handlers finish, up to 24 h. Then the contexts of their messages end, and the messages are
	// released for another worker to deliver again. Defaults to 30 s.
	DrainTimeout time.Duration

	// DeleteOnAck deletes acknowledged messages at once instead of leaving them to the janitor. Defaults to false.
	DeleteOnAck bool

	// Janitor says how long the log, and ended messages, joins and inbox entries, are kept. Disabled switches it off.
	// Defaults to 7 days, and for ever for failed messages; JanitorConfig has the rest.
	Janitor JanitorConfig

	// UnhandledAfter is how long due messages may wait on a topic without a subscription on the same *sql.DB in this process,
	// by this Subscriber, another or a forwarder, before it logs an error; they stay in the table. It is also how often it
	// checks, and calls Hooks.OnBacklog. A consumer group reports, instead, messages that have waited so long for a position in the
	// log, as they do without a Sequencer. -1 means never. Defaults to 1 min.
	UnhandledAfter time.Duration

	// HandlerLog is the level of the line that is logged for each message handed to its handler: slog.LevelInfo,
	// slog.LevelDebug, watermill.LevelTrace or LogOff. Defaults to slog.LevelInfo.
	HandlerLog slog.Level

	// Hooks are called as things happen. Defaults to none.
	Hooks Hooks
}

// LogOff is the SubscriberConfig.HandlerLog that logs no line.
const LogOff slog.Level = math.MaxInt

// FailurePolicy says what happens to a stream, or to a consumer group, when one of its messages has failed for good.
type FailurePolicy int

// The policies. With Block, a stream delivers nothing until RequeueStream, SkipHead or DiscardStream resumes it; a group
// delivers the message again and again, and logs that at each attempt. With DeadLetter, the message is kept with its error,
// and the next one follows: see Outbox.Failed and Outbox.GroupDeadLetters.
const (
	Block      FailurePolicy = 1
	DeadLetter FailurePolicy = 2
)

func (p FailurePolicy) validate(name string) error {
	if p != Block && p != DeadLetter {
		return field.Bad(name, "%d is neither Block nor DeadLetter", int(p))
	}
	return nil
}

// Never switches a periodic duty off.
const never time.Duration = -1

func (c *SubscriberConfig) setDefaults() {
	field.Default(&c.MaxInFlight, 100)
	field.Default(&c.MaxInFlightPerTopic, c.MaxInFlight)
	field.Default(&c.MaxInFlightBytes, 64<<20)
	field.Default(&c.LeaseDuration, limits.DefaultLease)
	field.Default(&c.ClaimTimeout, limits.Claiming(c.LeaseDuration))
	field.Default(&c.MaxHandlerTime, time.Hour)
	field.Default(&c.MaxAttempts, 10)
	field.Default(&c.OnGroupFailure, DeadLetter)
	field.Default(&c.OnStreamFailure, Block)
	field.Default(&c.MaxStreamRun, defaultRun)
	field.Default(&c.StreamAffinity, time.Second)
	field.Default(&c.PollInterval, 5*time.Millisecond)
	field.Default(&c.MaxPollInterval, max(500*time.Millisecond, c.PollInterval))
	field.Default(&c.DrainTimeout, 30*time.Second)
	field.Default(&c.UnhandledAfter, time.Minute)
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
}

func (c *SubscriberConfig) validate() error {
	switch {
	case c.MaxInFlight < 1 || c.MaxInFlight > limits.MaxInFlight:
		return field.Bad("SubscriberConfig.MaxInFlight", "%d is not between 1 and %d", c.MaxInFlight, limits.MaxInFlight)
	case c.MaxInFlightPerTopic < 1 || c.MaxInFlightPerTopic > c.MaxInFlight:
		return field.Bad("SubscriberConfig.MaxInFlightPerTopic", "%d is not between 1 and MaxInFlight, %d", c.MaxInFlightPerTopic, c.MaxInFlight)
	case c.MaxInFlightBytes < 1:
		return field.Bad("SubscriberConfig.MaxInFlightBytes", "%d is less than 1", c.MaxInFlightBytes)
	case c.MaxAttempts < 1 && c.MaxAttempts != -1:
		return field.Bad("SubscriberConfig.MaxAttempts", "%d is neither positive nor -1 for unlimited", c.MaxAttempts)
	case c.PollInterval < 0:
		return field.Bad("SubscriberConfig.PollInterval", "is negative")
	case c.ClaimTimeout < 0 || c.ClaimTimeout > limits.Longest:
		return field.Bad("SubscriberConfig.ClaimTimeout", "%v is not between 0 and %v", c.ClaimTimeout, limits.Longest)
	case c.MaxHandlerTime < 0 && c.MaxHandlerTime != never:
		return field.Bad("SubscriberConfig.MaxHandlerTime", "is negative; -1 means no limit")
	case c.MaxStreamRun < 1 || c.MaxStreamRun > maxBatch:
		return field.Bad("SubscriberConfig.MaxStreamRun", "%d is not between 1 and %d", c.MaxStreamRun, maxBatch)
	case (c.StreamAffinity < 0 && c.StreamAffinity != never) || c.StreamAffinity > limits.Longest:
		return field.Bad("SubscriberConfig.StreamAffinity", "%v is neither between 0 and %v nor -1 for none", c.StreamAffinity, limits.Longest)
	case c.MaxPollInterval < c.PollInterval:
		return field.Bad("SubscriberConfig.MaxPollInterval", "%v is less than PollInterval, %v", c.MaxPollInterval, c.PollInterval)
	case c.DrainTimeout < 0 || c.DrainTimeout > limits.Longest:
		return field.Bad("SubscriberConfig.DrainTimeout", "%v is not between 0 and %v", c.DrainTimeout, limits.Longest)
	case c.UnhandledAfter < 0 && c.UnhandledAfter != never:
		return field.Bad("SubscriberConfig.UnhandledAfter", "is negative; -1 means never")
	case !slices.Contains([]slog.Level{slog.LevelInfo, slog.LevelDebug, watermill.LevelTrace, LogOff}, c.HandlerLog):
		return field.Bad("SubscriberConfig.HandlerLog", "%v is none of slog.LevelInfo, slog.LevelDebug, watermill.LevelTrace and LogOff", c.HandlerLog)
	}
	if err := c.OnGroupFailure.validate("SubscriberConfig.OnGroupFailure"); err != nil {
		return err
	}
	if err := field.Key("SubscriberConfig.ConsumerGroup", c.ConsumerGroup); err != nil {
		return err
	}
	return validateLease("SubscriberConfig.LeaseDuration", c.LeaseDuration)
}
