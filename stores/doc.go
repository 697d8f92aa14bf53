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
// Each store is a separate outbox with its own joins: databases share nothing, and no transaction spans two of them. A store
// that is down, slow or badly configured is named in the log and does not affect the others.
//
// # Use
//
// NewStatic holds stores that are known at the start, NewDynamic those that a Discovery finds. Publish to a tenant's outbox
// through a Router. Give a Subscriber to a Watermill router; handlers find the store of their message with FromContext, and
// PerStore builds what a handler needs once per store. AddWaitHandler continues joins in every store. Run keeps a forwarder,
// a sequencer or a dispatcher running in each store, and Migrate installs all of them.
package stores
