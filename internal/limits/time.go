package limits

import "time"

// How long a statement that the library sends on its own may take, including the wait for a connection. A half-open
// connection can stay silent for as long as TCP allows; the limit lets the statement try another. A caller's statement is
// limited by its context alone.
//
// Each limit is a fraction of the lease that the statement serves. A statement without one, such as a Sequencer's, uses
// DefaultLease.
const (
	// DefaultLease is the lease of a Subscriber, a consumer group and a Cursor.
	DefaultLease = 30 * time.Second

	// Longest is the longest lease. It also bounds settings to which more time is added, so that the sum does not overflow.
	Longest = 24 * time.Hour

	// leastTime is what a busy machine needs, whatever the lease; mostTime is enough even for a lease of hours, because a
	// healthy database answers long before.
	leastTime = 500 * time.Millisecond
	mostTime  = 30 * time.Second

	// RollingBack is for a rollback, which must be tried even if the context of its transaction has ended. After that the
	// connection is dropped, and the database rolls back.
	RollingBack = 5 * time.Second

	// Discarding is for closing a connection, which its pool can also do without us.
	Discarding = time.Second

	// Publishing is for a transaction that many callers wait for. Each of them leaves earlier if its own context ends.
	Publishing = mostTime

	// Reporting is for the end of a join's step that a broker has delivered. If it fails, the whole message is handled again.
	Reporting = mostTime
)

// RenewEvery is the age at which a lease is renewed: three more renewals may fail before it is over.
func RenewEvery(lease time.Duration) time.Duration { return max(lease/4, time.Millisecond) }

// Heartbeat is the time between two heartbeats of a worker, after three of which it counts as dead.
func Heartbeat(lease time.Duration) time.Duration {
	return min(max(lease/3, 100*time.Millisecond), 10*time.Second)
}

// Trusted is how long a worker relies on a lease that it cannot renew. It stops short of the lease's end because the timer
// that ends a handler may fire late, on a busy machine or after the process was suspended.
func Trusted(lease time.Duration) time.Duration { return lease - lease/10 }

// Renewing is for renewing the leases of messages and consumer groups, and for moving a group on. It ends when the next
// renewal is due.
func Renewing(lease time.Duration) time.Duration { return part(lease, 4) }

// Settling is for a batch of settlements, and leaves time for more tries on other connections before the leases end.
func Settling(lease time.Duration) time.Duration { return part(lease, 4) }

// Claiming is for a claim, whose lease runs from before it is sent, and which gives back expired leases: see Reaping.
func Claiming(lease time.Duration) time.Duration { return part(lease, 2) }

// Reading is for a batch of the log, which is read between two renewals of the group's lease.
func Reading(lease time.Duration) time.Duration { return part(lease, 4) }

// Stamping is for giving positions to a batch of the log, which every reader waits for.
func Stamping(lease time.Duration) time.Duration { return part(lease, 2) }

// Reaping is for a round of giving back expired leases, which begins only while none of the worker's own leases is older
// than the other half.
func Reaping(lease time.Duration) time.Duration { return part(lease, 2) }

// Upkeep is for work that nobody waits for: a batch of purging, a look at the topics, a probe.
func Upkeep(lease time.Duration) time.Duration { return part(lease, 1) }

func part(lease time.Duration, of int64) time.Duration {
	return min(max(lease/time.Duration(of), leastTime), mostTime)
}
