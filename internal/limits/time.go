package limits

import "time"

// How long a statement that the library sends by itself may take, its wait for a connection included. A connection that is
// half open answers nothing for as long as TCP lets it; the limit gives the statement another connection. What a caller
// runs with a context of its own has that context's limit and no other.
//
// Each limit is a part of the lease that the statement serves. One that has none, such as a Sequencer's, takes DefaultLease.
const (
	// DefaultLease is the lease of a Subscriber, a consumer group and a Cursor.
	DefaultLease = 30 * time.Second

	// The least is what a busy machine needs, whatever the lease; the most is what even a lease of hours need not exceed,
	// because a database that is well answers long before.
	leastTime = 500 * time.Millisecond
	mostTime  = 30 * time.Second

	// RollingBack is for a rollback, which has to be tried when the context of its transaction has ended; after that the
	// connection is given up, and the database rolls back.
	RollingBack = 5 * time.Second
)

// RenewEvery is the age at which a lease is renewed: three more renewals may fail before it is over.
func RenewEvery(lease time.Duration) time.Duration { return max(lease/4, time.Millisecond) }

// Trusted is how long a worker relies on a lease that it cannot renew. It stops short of the lease's end because the timer
// that ends a handler may fire late, on a busy machine or after the process was suspended.
func Trusted(lease time.Duration) time.Duration { return lease - lease/10 }

// Renewing is for renewing leases, of messages and of consumer groups, and for moving a group on: given up when the next
// renewal is due.
func Renewing(lease time.Duration) time.Duration { return part(lease, 4) }

// Settling is for a batch of settlements, so that there is time for more tries on other connections before the leases end.
func Settling(lease time.Duration) time.Duration { return part(lease, 4) }

// Claiming is for a claim, whose lease runs from before it is sent, and for the give-back of expired leases in it: see Reaping.
func Claiming(lease time.Duration) time.Duration { return part(lease, 2) }

// Reading is for reading a batch of the log, which happens between two renewals of the group's lease.
func Reading(lease time.Duration) time.Duration { return part(lease, 4) }

// Stamping is for giving positions to a batch of the log, for which every reader waits.
func Stamping(lease time.Duration) time.Duration { return part(lease, 2) }

// Reaping is for a round of giving back what has expired, which begins only while no lease of the worker's own is older
// than the other half.
func Reaping(lease time.Duration) time.Duration { return part(lease, 2) }

// Upkeep is for what nobody waits for: a batch of purging, a look at the topics, a probe.
func Upkeep(lease time.Duration) time.Duration { return part(lease, 1) }

func part(lease time.Duration, of int64) time.Duration {
	return min(max(lease/time.Duration(of), leastTime), mostTime)
}
