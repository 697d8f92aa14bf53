// Package wakepgx carries wake-ups between processes over PostgreSQL's LISTEN and NOTIFY, so that a message published by one
// process is claimed by another within milliseconds, whatever its polling interval.
//
// The publishing process has a Notifier, the subscribing one a Listener; a process that does both has both:
//
//	notifier, err := wakepgx.NewNotifier(db, wakepgx.NotifierConfig{}, logger)
//	listener, err := wakepgx.NewListener(wakepgx.ListenerConfig{DSN: dsn}, logger)
//	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{…, Wakeups: listener.Wakeups()}, logger)
//
// The process that settles the last step of a join wakes the topic of the messages that wait for it: give workers whose
// messages are steps a Notifier too, and joins continue at once in any process.
//
// A wake-up is a hint: if one is lost, polling finds the message. Publishing in a transaction of your own notifies once you
// call outbox.Wake after the commit; outbox.InTx does it for you.
package wakepgx

// defaultChannel is the NOTIFY channel of both sides.
const defaultChannel = "outbox"
