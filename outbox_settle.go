package outbox

import (
	"fmt"
	"time"
)

// Outcome is how a held message is settled.
type Outcome int

// The outcomes. Only Retry spends an attempt; Ack and Fail end the message.
const (
	Ack     Outcome = 0 // done (OBX-021)
	Retry   Outcome = 1 // back to ready after a backoff (OBX-029 to OBX-031)
	Release Outcome = 2 // back to ready as it was: it was not tried
	Fail    Outcome = 3 // failed for good (OBX-036)
)

func (o Outcome) String() string {
	switch o {
	case Ack:
		return "ack"
	case Retry:
		return "retry"
	case Release:
		return "release"
	case Fail:
		return "fail"
	default:
		return fmt.Sprintf("outcome %d", int(o))
	}
}

// noDelay as a Settlement's Delay makes the message due at once.
const noDelay time.Duration = -1

// A Settlement ends or returns one held message.
type Settlement struct {
	Receipt Receipt
	Outcome Outcome

	// Delay is how long the message waits before it is due again, after Retry and Release.
	// Defaults to the backoff of the specification after Retry (min(2^RetryCount s, 60 s)), to none after Release; -1 means at once.
	Delay time.Duration

	// Err is kept as the row's LastError. Nil leaves the last one there. An Ack has none.
	Err error
}

// outcomes counts what is asked for.
func outcomes(settlements []Settlement) map[Outcome]int {
	counts := map[Outcome]int{}
	for _, s := range settlements {
		counts[s.Outcome]++
	}
	return counts
}

func (s Settlement) validate() error {
	switch {
	case s.Outcome < Ack || s.Outcome > Fail:
		return badField("Settlement.Outcome", "%d is none of Ack, Retry, Release and Fail", int(s.Outcome))
	case s.Delay < 0 && s.Delay != noDelay:
		return badField("Settlement.Delay", "is negative; -1 means at once")
	case s.Outcome == Ack && s.Err != nil:
		return badField("Settlement.Err", "is not nil, but an Ack has no error; use Retry, Release or Fail")
	default:
		return nil
	}
}

// settleGroup is one group of settlements on the wire: all that are equal but for the row, so that the usual batch,
// one claim acknowledged whole, is a single group.
type settleGroup struct {
	Owner   OwnerToken   `json:"owner"`
	Outcome Outcome      `json:"outcome"`
	DelayMS *int64       `json:"delay_ms,omitempty"`
	Error   string       `json:"error,omitempty"`
	Seqs    []WorkItemID `json:"seqs"`
}

type settleArg struct {
	Worker       string        `json:"worker"`
	BackoffMS    int64         `json:"backoff_ms"`
	BackoffMaxMS int64         `json:"backoff_max_ms"`
	DeleteAcked  bool          `json:"delete_acked"`
	PassOver     bool          `json:"pass_over,omitempty"`
	Along        bool          `json:"along,omitempty"` // a claim waits for it
	Over         []OwnerToken  `json:"over,omitempty"`
	Own          bool          `json:"own,omitempty"`
	SkipFailed   bool          `json:"skip_failed,omitempty"`
	Groups       []settleGroup `json:"groups"`
}

// groupSettlements puts settlements into groups; of two with the same receipt the first counts.
func groupSettlements(settlements []Settlement) []settleGroup {
	type key struct {
		owner   OwnerToken
		outcome Outcome
		delay   time.Duration
		err     string
	}
	index := map[key]int{}
	seen := make(map[Receipt]struct{}, len(settlements))
	var groups []settleGroup
	for _, s := range settlements {
		if _, again := seen[s.Receipt]; again {
			continue
		}
		seen[s.Receipt] = struct{}{}
		k := key{s.Receipt.Owner, s.Outcome, wholeMS(s.Delay), storableError(s.Err)}
		at, ok := index[k]
		if !ok {
			at = len(groups)
			index[k] = at
			groups = append(groups, settleGroup{Owner: k.owner, Outcome: k.outcome, DelayMS: delayMS(s), Error: k.err})
		}
		groups[at].Seqs = append(groups[at].Seqs, s.Receipt.Seq)
	}
	return groups
}

// wholeMS is a delay as the database is told it, so that those that differ by less are one group.
func wholeMS(delay time.Duration) time.Duration {
	if delay <= 0 {
		return delay
	}
	return max(delay.Truncate(time.Millisecond), time.Millisecond)
}

// delayMS leaves the database's own default out.
func delayMS(s Settlement) *int64 {
	if s.Outcome != Retry && s.Outcome != Release || s.Delay == 0 {
		return nil
	}
	ms := max(wholeMS(s.Delay), 0).Milliseconds()
	return &ms
}

func groupReceipts(receipts []Receipt) []settleGroup {
	settlements := make([]Settlement, len(receipts))
	for i, r := range receipts {
		settlements[i] = Settlement{Receipt: r}
	}
	return groupSettlements(settlements)
}
