// Package admin is for whoever looks after an outbox: it searches messages, requeues, discards, cancels, delays or edits them by
// what they have in common, pauses topics, traces what happened to a message, and measures whether the outbox is being served.
// What it changes is recorded, with who did it, in the same transaction.
//
// Each call to the database looks at a bounded number of messages, whatever it is asked for and however many there are, so
// that a search neither holds up workers nor runs into a time limit. A search of many messages is many calls, which the
// functions of this package make until they have found enough.
//
// What acts on many messages does so in batches, each a transaction of its own: if it is interrupted, what it has done stays
// done. Of dead letters it takes those that had failed when it began, so that it never takes one a second time that fails again
// in the meantime. To continue, call it again with Filter.Until set to the Result's Until.
package admin
