// Package fanout lets one stream drive many destinations: policies read the log of an outbox and send each message on, to
// topics of the same outbox, to outboxes in other databases, and to any Watermill publisher.
//
//	dispatcher, err := fanout.NewDispatcher(db, fanout.Config{Dialect: dialect, Policies: []fanout.Policy{{
//		Name:   "orders",
//		Topics: "orders.*",
//		Destinations: []fanout.Destination{
//			fanout.ToTopic("billing"),
//			fanout.ToTopic("shipping"),
//			fanout.ToPublisher("warehouse", kafka, "orders"),
//		},
//	}}}, logger)
//	err = dispatcher.Run(ctx)
//
// Messages get into the log by outbox.QueueAndLog or outbox.LogOnly, and get their positions by an outbox.Sequencer.
//
// # A policy's turn
//
//	lease ──▶ read what comes after the cursor ──▶ keep what matches
//	                                                     │
//	            other databases and publishers take it ◀─┘      no lock is held; again, with pauses, until all have it
//	                          │
//	                          ▼
//	            ┌─ one transaction ────────────────────┐
//	            │ the cursor moves, if the lease holds │
//	            │ copies for topics of this outbox     │
//	            │ they become steps of a join          │
//	            └──────────────────────────────────────┘
//
// A policy's cursor is the consumer group "fanout:" and its name in the whole log: the log is not purged before it has been
// passed. A new policy begins with the oldest message that is left. Outbox.ForgetGroup removes the cursor of one that is
// no more.
//
// When a policy changes, raise its Version: the dispatcher that is deployed with it takes the policy over at once, while the
// older ones still run, and what is published from then on goes where it says.
//
// # Guarantees
//
//   - A topic of the same outbox gets every message once, in the order of the log, whatever is killed and however many
//     dispatchers run.
//   - Elsewhere it arrives at least once, and in order apart from repetitions. Its id is made from policy, destination and
//     source, so that a repetition has the same: another outbox does not insert what it still has, and receivers behind a
//     publisher find it in the header outbox_message_id.
//   - A destination that cannot be reached holds up its policy, and no other. One that never takes a message does so
//     forever: where messages may be refused, send them to a topic, and let a forwarder.Forwarder publish and fail them.
//   - UUID, payload and headers stay as they are, and so do correlation id and stream key; a few headers are added. A due
//     time holds for topics and outboxes.
//   - Copies are for the queue and not in the log, so that no policy feeds itself.
package fanout
