// Package join is fan-in: many messages go out, and when all have ended, one follows.
//
// A join counts the ends of its steps, which are messages of the outbox, in the very transactions that end them:
// acknowledging a message completes its step, failing for good fails it, and handlers need not know. Whoever ends the
// last step ends the join, and wakes the messages that wait for it.
//
//	id, err := joins.Start(ctx, tx, join.StartParams{ExpectedSteps: 2})
//	_, err = joins.Enqueue(ctx, tx, id, customers, orders)
//	_, err = joins.EnqueueWait(ctx, tx, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "etl.transform"}})
//
// # Life of a join
//
//	        Start                        Start, Open
//	          │                               │
//	          │          Seal                 ▼
//	          │   ┌──────────────────────── open ◀─┐
//	          ▼   ▼                           │    │ Attach, Enqueue, steps end
//	┌───▶ pending                             └────┘
//	│        │                                │
//	└────────┤ Attach, steps end              │      Quorum, FailFast and Cancel end an open join too
//	         ▼                                ▼
//	      verdict ───────────────┬──────────────────────────────┐
//	         │                   │                              │
//	         ▼                   ▼                              ▼
//	     completed             failed                       cancelled
//	  all have completed,   all have ended and one has     Cancel, or the
//	  or Quorum of them     failed; with FailFast the      timeout of a wait
//	                        first has; with Quorum too
//	                        many have
//
// The verdict is one rule, and it stands in the table itself, as a computed column. Ends are final: steps that end later
// change their own state and no counter.
//
// A step ends once. It ends by its message being settled (Attach, Enqueue), by a report (AttachByReport, Middleware), or
// with another join (AttachJoin). A message that failed and is requeued runs again, but its step stays failed.
//
// # Waiting
//
// A [Wait] is a message on the topic join.wait, handled by [Coordinator.AddWaitHandler]. It is put off when it is sent,
// and made due by the transaction that ends the join, so that waiting costs no attempt and no polling. The continuation
// and the end of the wait are one transaction: one continuation a wait, with the outcome in its headers.
//
// # Guarantees
//
//   - A step that ends is counted exactly once in each join that has it, in the transaction that ends it.
//   - A join ends exactly once, whoever races for its last step.
//   - No wake-up is lost: ending a join and waiting for it both lock its row first.
//   - Attaching holds up nobody who settles. Two transactions that attach to one join wait for each other.
//   - A join lives in the database of its messages. There are no joins across databases (join each database, then wait).
//   - Ended joins stay for 7 days, by the janitor of a Subscriber, or until [Coordinator.Purge]; the outbox keeps the messages of pending joins until they have ended.
package join
