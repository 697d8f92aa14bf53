package outbox

import "time"

// Hooks are called as things happen, for metrics. Any of them may be nil. They run on the outbox's goroutines and on those
// of callers: they must be quick, must not block, and must be safe for concurrent use.
type Hooks struct {
	// OnPublish is called after every attempt to enqueue, even inside a transaction that may still be rolled back. Messages
	// that were collected (Scoped) are enqueued when they are flushed.
	OnPublish func(PublishEvent)

	// OnClaim is called after every claim that took something or failed.
	OnClaim func(ClaimEvent)

	// OnSettle is called after every batch of settlements. A settlement in a handler's own transaction is reported once the
	// transaction is known to be committed.
	OnSettle func(SettleEvent)

	// OnHandled is called after each delivery from the queue that a handler acked or nacked, or that was taken from it.
	OnHandled func(HandledEvent)

	// OnHandlerTimeout is called when a message is taken from a handler that did not ack or nack within MaxHandlerTime: its
	// Outcome is Retry, or Fail after the last attempt.
	OnHandlerTimeout func(HandledEvent)

	// OnReap is called when messages became ready again because their leases had expired.
	OnReap func(ReapEvent)

	// OnGroupRead is called after every read of the log for a consumer group that found something or failed, and after the
	// first that found nothing more, so that gauges fall to 0.
	OnGroupRead func(GroupReadEvent)

	// OnGroupSettle is called after each delivery to a consumer group.
	OnGroupSettle func(HandledEvent)

	// OnLogWentBack is called when the reader of a consumer group finds that the database is older than what it has read.
	OnLogWentBack func(*LogWentBackError)

	// OnJoinEnd is called when a join has ended, even inside a transaction that may still be rolled back.
	OnJoinEnd func(JoinEvent)

	// OnBacklog is called each time a Subscriber checks all topics, every UnhandledAfter: with the topics that have due
	// messages, blocked streams or dead letters, and with the empty ones that it is subscribed to or reported last time, so
	// that gauges fall to 0.
	OnBacklog func([]TopicBacklog)
}

// A PublishEvent reports one call that enqueued messages.
type PublishEvent struct {
	Store    string // of the outbox's configuration
	Topics   []string
	Counts   []int // the number of messages of each topic
	Messages int
	Calls    int           // that were written together, with this one: more than 1 only if PublisherConfig.Flush says so
	Took     time.Duration // with the wait for others (Interval, Batch)
	Err      error
}

// A ClaimEvent reports one claim.
type ClaimEvent struct {
	Store    string // of the outbox's configuration
	Messages int
	Topics   map[string]int // the number of messages by topic; nil if there are none
	Took     time.Duration
	Err      error
}

// A SettleEvent reports one batch of settlements.
type SettleEvent struct {
	Store    string // of the outbox's configuration
	Outcomes map[Outcome]int
	Refused  int // receipts that were no longer held
	Busy     int // receipts whose rows other transactions had locked: a Subscriber settles them later
	Unknown  int // as Refused, but after a try whose answer was lost: that try settled them, or they were already lost
	Took     time.Duration
	Err      error
}

// A HandledEvent reports one delivery to a handler.
type HandledEvent struct {
	Store     string // of the outbox's configuration
	Topic     string
	Group     string // the consumer group; empty for the queue
	Position  int64  // in the log; 0 for the queue
	MessageID MessageID
	Attempt   int           // 1 for the first delivery
	Outcome   Outcome       // how the message is settled
	Took      time.Duration // in the handler
	Wait      time.Duration // from its due time until the handler got it, by both clocks; 0 after the first attempt
	Err       error         // why the handler did not succeed
}

// A ReapEvent reports messages whose leases had expired.
type ReapEvent struct {
	Store    string // of the outbox's configuration
	Messages int
}

// A GroupReadEvent reports one read of the log.
type GroupReadEvent struct {
	Store        string // of the outbox's configuration
	Group, Topic string
	Messages     int
	Position     int64         // the read began after it
	Lag          time.Duration // how long the first message has been in the log, by the database's clock
	Took         time.Duration
	Err          error
}

// A TopicBacklog is a topic, its due messages and its dead letters.
type TopicBacklog struct {
	Store   string // of the outbox's configuration
	Topic   string
	Waiting int           // due messages and those behind them in their streams, counted up to 10,000, without blocked streams
	Oldest  time.Time     // when the oldest became due; approximate for streams
	Age     time.Duration // how long it has been due, by the database's clock
	Handled bool          // whether a Subscriber or forwarder of this process, on the same *sql.DB, is subscribed to it

	BlockedStreams int // streams blocked by a message that failed for good, counted up to 10,000
	Failed         int // dead letters, among the newest 10,000 of the outbox

	// PausedSince is since when nothing of the topic is claimed, because an operator has paused it; zero if nobody has.
	PausedSince time.Time
	PausedBy    string // who paused it
	PauseReason string // and why
}

func (h Hooks) published(e PublishEvent) {
	if h.OnPublish != nil {
		h.OnPublish(e)
	}
}

func (h Hooks) claimed(store string, claimed []*Claimed, took time.Duration, err error) {
	if h.OnClaim == nil || len(claimed) == 0 && err == nil {
		return
	}
	e := ClaimEvent{Store: store, Messages: len(claimed), Took: took, Err: err}
	if len(claimed) > 0 {
		e.Topics = map[string]int{}
	}
	for i := range claimed {
		e.Topics[claimed[i].Topic]++
	}
	h.OnClaim(e)
}

func (h Hooks) settled(e SettleEvent) {
	if h.OnSettle != nil {
		h.OnSettle(e)
	}
}

func (h Hooks) handled(e HandledEvent) {
	if h.OnHandled != nil {
		h.OnHandled(e)
	}
}

func (h Hooks) handlerTimedOut(e HandledEvent) {
	if h.OnHandlerTimeout != nil {
		h.OnHandlerTimeout(e)
	}
}

func (h Hooks) reaped(e ReapEvent) {
	if h.OnReap != nil && e.Messages > 0 {
		h.OnReap(e)
	}
}

func (h Hooks) groupRead(e GroupReadEvent) {
	if h.OnGroupRead != nil {
		h.OnGroupRead(e)
	}
}

func (h Hooks) groupSettled(e HandledEvent) {
	if h.OnGroupSettle != nil {
		h.OnGroupSettle(e)
	}
}

func (h Hooks) logWentBack(e *LogWentBackError) {
	if h.OnLogWentBack != nil {
		h.OnLogWentBack(e)
	}
}

func (h Hooks) joinEnded(e JoinEvent) {
	if h.OnJoinEnd != nil {
		h.OnJoinEnd(e)
	}
}

func (h Hooks) backlog(topics []TopicBacklog) {
	if h.OnBacklog != nil {
		h.OnBacklog(topics)
	}
}
