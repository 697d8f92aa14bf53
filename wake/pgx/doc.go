// Package wakepgx carries wake-ups between processes over PostgreSQL's LISTEN and NOTIFY, so that a message that one
// process publishes is claimed by another within milliseconds, whatever its polling interval.
//
// The publishing process has a Notifier, the subscribing one a Listener; a process that does both has both:
//
//	notifier, err := wakepgx.NewNotifier(db, wakepgx.NotifierConfig{}, logger)
//	listener, err := wakepgx.NewListener(wakepgx.ListenerConfig{DSN: dsn}, logger)
//	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{…, Wakeups: listener.Wakeups()}, logger)
//
// Whoever settles the last step of a join wakes the messages that wait for it, on their topic: give workers whose messages
// are steps a Notifier too, and what follows a join comes at once in whatever process.
//
// A wake-up is a hint: when one is lost, polling finds the message. Publishing in a transaction of your own notifies
// once you call outbox.Wake after the commit; outbox.InTx does it for you.
package wakepgx

// defaultChannel is the NOTIFY channel of both sides.
const defaultChannel = "outbox"
