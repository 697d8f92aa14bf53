// Package join is fan-in: many messages go out, and when all have ended, one follows.
//
// A join counts the ends of its steps, which are messages of the outbox, in the same transactions that end them:
// acknowledging a message completes its step, failing for good fails it, and handlers need not know. Ending the last step
// ends the join and wakes the messages that wait for it.
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
// The verdict is one rule, a computed column of the table. Ends are final: steps that end later change their own state and
// no counter.
//
// A step ends once: when its message is settled (Attach, Enqueue), by a report (AttachByReport, Middleware), or with another
// join (AttachJoin). A message that failed and is requeued runs again, but its step stays failed.
//
// # Waiting
//
// A [Wait] is a message on the topic join.wait, handled by [Coordinator.AddWaitHandler]. It is put off when it is sent, and
// made due by the transaction that ends the join, so that waiting costs no attempts and no polling. The continuation is sent
// and the wait ended in one transaction: each wait sends one continuation, with the outcome in its headers.
//
// # Guarantees
//
//   - A step that ends is counted exactly once in each join that has it, in the transaction that ends it.
//   - A join ends exactly once, even if several workers race for its last step.
//   - No wake-up is lost: both ending a join and waiting for it lock its row first.
//   - Attaching does not hold up settling. Two transactions that attach to the same join wait for each other.
//   - A join lives in the database of its messages. There are no joins across databases (join each database, then wait).
//   - Ended joins stay until the janitor of a Subscriber purges them, after 7 days by default, or until [Coordinator.Purge];
//     the outbox keeps the messages of pending joins until they have ended.
package join
