// Package stores runs the outboxes of many databases in one process: one for each tenant, or for each shard.
//
//	Discovery ──every 5 minutes──▶ Provider: the stores that there are, in a stable order
//	                                  │
//	           ┌──────────────────────┼───────────────────────────┐
//	           ▼                      ▼                           ▼
//	Router: key ─▶ Outbox     Subscriber: one Watermill       Run, Migrate: something
//	of the tenant's store     subscriber over all stores      in each store
//	                                  │
//	              scheduler: strategy, lanes, breakers
//	              │ turn           │ turn           │ turn
//	              ▼                ▼                ▼
//	        outbox.Subscriber  outbox.Subscriber  outbox.Subscriber      one for each store
//
// Each store is an outbox of its own with its own joins: nothing is shared among databases, and no transaction spans two of
// them. A store that is down, slow or badly configured is named in the log and harms no other.
//
// # Use
//
// NewStatic holds stores that are known at the start, NewDynamic those that a Discovery finds. Publish to the outbox of a
// tenant through a Router. Give a Subscriber to a Watermill router; a handler learns from FromContext in which store its
// message is, and PerStore builds what a handler needs for each. WaitHandler continues joins in every store. Run keeps a
// forwarder, a sequencer or a dispatcher going in each store, and Migrate installs all.
package stores
