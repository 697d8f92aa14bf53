// Package admin is for whoever looks after an outbox: it searches messages, requeues or discards dead letters by what they have
// in common, tells what happened to a message, and measures whether the outbox is being served.
//
// Each call to the database looks at a bounded number of messages, whatever it is asked for and however many there are, so
// that a search neither holds up workers nor runs into a time limit. A search of many messages is many calls, which the
// functions of this package make until they have found enough.
//
// What acts on many messages does so in batches, each a transaction of its own: if it is interrupted, what it has done stays
// done. It takes the messages that had failed when it began, so that it never takes one a second time that fails again in
// the meantime. To continue, call it again with Filter.Until set to the Result's Until.
package admin
