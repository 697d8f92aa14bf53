// Package fanout copies one stream to many destinations: policies read the log of an outbox and send each message on to
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
// Messages enter the log with outbox.QueueAndLog or outbox.LogOnly, and are given positions by an outbox.Sequencer.
//
// # A policy's round
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
// A policy's cursor is a consumer group of the whole log, named "fanout:" and the policy's name: the log is not purged
// beyond it. A new policy begins with the oldest message in the log. Outbox.ForgetGroup removes the cursor of a policy that
// no longer exists.
//
// When a policy changes, raise its Version: the dispatcher that is deployed with it takes the policy over at once, while
// older ones still run, and messages published from then on go where the new version says.
//
// # Guarantees
//
//   - A topic of the same outbox gets every message once, in the order of the log, whatever is killed and however many
//     dispatchers run.
//   - Elsewhere it arrives at least once, in order apart from repetitions. Its id is derived from policy, destination and
//     source, so that a repetition has the same id: another outbox does not insert a message that it still has, and
//     receivers behind a publisher find the id in the header outbox_message_id.
//   - A destination that cannot be reached holds up its own policy only. One that never accepts a message holds it up
//     forever: if messages may be rejected, send them to a topic, and let a forwarder.Forwarder publish and fail them.
//   - UUID, payload, headers, correlation id and stream key stay as they are; a few headers are added. Due times apply to
//     topics and outboxes.
//   - Copies go to the queue and not to the log, so that no policy feeds itself.
package fanout
