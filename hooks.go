package outbox

import "time"

// Hooks are called as things happen, for metrics. Any of them may be nil. They run on the outbox's own goroutines:
// they must be quick, must not block, and must be safe for concurrent use.
type Hooks struct {
	// OnPublish is called after every attempt to enqueue, also inside a transaction that may yet be rolled back.
	OnPublish func(PublishEvent)

	// OnClaim is called after every claim that took something or failed.
	OnClaim func(ClaimEvent)

	// OnSettle is called after every batch of settlements. What a handler settles in its own transaction is told once the
	// transaction is known to be committed.
	OnSettle func(SettleEvent)

	// OnHandled is called after each delivery of the queue that a handler has answered, or that was taken from it.
	OnHandled func(HandledEvent)

	// OnHandlerTimeout is called when a message was taken from a handler that did not answer within MaxHandlerTime: its
	// Outcome is Retry, or Fail after the last attempt.
	OnHandlerTimeout func(HandledEvent)

	// OnReap is called when messages were given back because their lease had expired.
	OnReap func(ReapEvent)

	// OnGroupRead is called after every read of the log for a consumer group that found something or failed.
	OnGroupRead func(GroupReadEvent)

	// OnGroupSettle is called after each delivery to a consumer group.
	OnGroupSettle func(HandledEvent)

	// OnLogWentBack is called when the reader of a consumer group has found that the database has come back older.
	OnLogWentBack func(*LogWentBackError)

	// OnJoinEnd is called when a join has ended, also inside a transaction that may yet be rolled back.
	OnJoinEnd func(JoinEvent)

	// OnBacklog is called each time a Subscriber looks at all topics, every UnhandledAfter: with those that have due messages,
	// and with those that it is subscribed to, or reported the last time, and that have none, so that gauges fall to 0.
	OnBacklog func([]TopicBacklog)
}

// A PublishEvent tells of one call that enqueued messages.
type PublishEvent struct {
	Store    string // of the outbox's configuration
	Topics   []string
	Messages int
	Took     time.Duration
	Err      error
}

// A ClaimEvent tells of one claim.
type ClaimEvent struct {
	Store    string // of the outbox's configuration
	Messages int
	Topics   map[string]int // the messages of each topic; nil if there are none
	Took     time.Duration
	Err      error
}

// A SettleEvent tells of one batch of settlements.
type SettleEvent struct {
	Store    string // of the outbox's configuration
	Outcomes map[Outcome]int
	Refused  int // receipts that were no longer held
	Busy     int // receipts whose rows transactions of others had locked: a Subscriber settles them later
	Unknown  int // the same as Refused, after a try whose answer was lost: that try has settled them, or they were lost before
	Took     time.Duration
	Err      error
}

// A HandledEvent tells of one delivery to a handler.
type HandledEvent struct {
	Store     string // of the outbox's configuration
	Topic     string
	Group     string // the consumer group; empty for the queue
	Position  int64  // of the message in the log; 0 for the queue
	MessageID MessageID
	Attempt   int           // 1 for the first delivery
	Outcome   Outcome       // what becomes of the message
	Took      time.Duration // by the handler
	Err       error         // why the handler did not succeed
}

// A ReapEvent tells of leases that had expired.
type ReapEvent struct {
	Store    string // of the outbox's configuration
	Messages int
}

// A GroupReadEvent tells of one read of the log.
type GroupReadEvent struct {
	Store        string // of the outbox's configuration
	Group, Topic string
	Messages     int
	Position     int64         // after which was read
	Lag          time.Duration // how long the first message had been in the log, by the database's clock
	Took         time.Duration
	Err          error
}

// A TopicBacklog is a topic and its due messages.
type TopicBacklog struct {
	Store   string // of the outbox's configuration
	Topic   string
	Waiting int           // due messages and those behind them in their streams, counted up to 10,000; not what blocked streams hold up
	Oldest  time.Time     // when the oldest of them became due, of streams about so
	Age     time.Duration // for how long it has been due, by the database's clock
	Handled bool          // whether the Subscriber that looked is subscribed to it

	BlockedStreams int // streams that a message has blocked which failed for good, counted up to 10,000
}

func (h Hooks) published(e PublishEvent) {
	if h.OnPublish != nil {
		h.OnPublish(e)
	}
}

func (h Hooks) claimed(store string, claimed []Claimed, took time.Duration, err error) {
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
	if h.OnGroupRead != nil && (e.Messages > 0 || e.Err != nil) {
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
