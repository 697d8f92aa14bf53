package outbox

// Turns share out the claims of many Subscribers, each on a store of its own, so that a bounded number of them claims at
// once and no more messages are out than wanted. Package stores has them; a Subscriber by itself has none. A Turns belongs
// to one Subscriber, which calls it from several goroutines. None of the methods but Take may block.
type Turns interface {
	// Take waits for the Subscriber's turn to claim, and returns how many messages it may take, at least 1. want says how
	// many it could take now; it may be called until Take returns, by any goroutine and under locks of the Turns. Take
	// returns 0 if stop is closed first, and only then.
	Take(want func() int, stop <-chan struct{}) int

	// Claimed ends the turn: so many messages were claimed, or none because of the error. The Subscriber neither logs the
	// error nor pauses because of it: its next Take waits until the store is worth another try.
	Claimed(messages int, err error)

	// Answered gives back the places of messages that were claimed: they were acked, nacked or released.
	Answered(messages int)

	// Down says that the store does not answer, and is left alone but for what Take allows: nothing is reaped or purged,
	// and nobody looks for topics without a handler. Leases of what is being handled are still renewed, for without that
	// another would handle the same.
	Down() bool
}
