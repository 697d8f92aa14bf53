package outbox

import (
	"fmt"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Outcome is how a held message is settled.
type Outcome int

// The outcomes. Only Retry spends an attempt; Ack and Fail end the message.
const (
	Ack     Outcome = 0 // done
	Retry   Outcome = 1 // ready again after a backoff
	Release Outcome = 2 // ready again as before: it was not tried
	Fail    Outcome = 3 // failed for good
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

// noDelay is the Settlement.Delay of a message that is due at once.
const noDelay time.Duration = -1

// A Settlement ends one held message, or returns it to the queue.
type Settlement struct {
	Receipt Receipt
	Outcome Outcome

	// Delay is how long the message waits before it is due again after Retry or Release; -1 means not at all. Defaults to
	// min(2^RetryCount s, 60 s) after Retry, and to none after Release.
	Delay time.Duration

	// Err becomes the row's LastError; nil keeps the last one. It must be nil for an Ack.
	Err error

	// Stages are added to those of the message: a middleware.StageSet, whose constants are in package middleware. Defaults to
	// none.
	Stages base.Stages
}

// outcomes counts settlements by outcome.
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
		return field.Bad("Settlement.Outcome", "%d is none of Ack, Retry, Release and Fail", int(s.Outcome))
	case s.Delay < 0 && s.Delay != noDelay:
		return field.Bad("Settlement.Delay", "is negative; -1 means at once")
	case s.Outcome == Ack && s.Err != nil:
		return field.Bad("Settlement.Err", "is not nil, but an Ack has no error; use Retry, Release or Fail")
	case !s.Stages.Valid():
		return field.Bad("Settlement.Stages", "%#x has bits that are no stages", uint32(s.Stages))
	default:
		return nil
	}
}

// settleGroup is a group of settlements on the wire that differ only in their rows, so that the usual batch, a whole claim
// acknowledged, is a single group.
type settleGroup struct {
	Owner   OwnerToken   `json:"owner"`
	Outcome Outcome      `json:"outcome"`
	DelayMS *int64       `json:"delay_ms,omitempty"`
	Error   string       `json:"error,omitempty"`
	Stages  base.Stages  `json:"stages,omitempty"`
	Seqs    []WorkItemID `json:"seqs"`
}

type settleArg struct {
	Worker       string        `json:"worker"`
	BackoffMS    int64         `json:"backoff_ms"`
	BackoffMaxMS int64         `json:"backoff_max_ms"`
	DeleteAcked  bool          `json:"delete_acked"`
	PassOver     bool          `json:"pass_over,omitempty"`
	Along        bool          `json:"along,omitempty"` // a claim in the same transaction waits for it
	Over         []OwnerToken  `json:"over,omitempty"`
	Own          bool          `json:"own,omitempty"`
	SkipFailed   bool          `json:"skip_failed,omitempty"`
	Groups       []settleGroup `json:"groups"`
}

// groupSettlements groups settlements; if two have the same receipt, the first counts. With deleteAcked, the state of an
// acknowledged message is deleted, and nothing is left to have stages.
func groupSettlements(settlements []Settlement, deleteAcked bool) []settleGroup {
	type key struct {
		owner   OwnerToken
		outcome Outcome
		delay   time.Duration
		err     string
		stages  base.Stages
	}
	index := map[key]int{}
	seen := make(map[Receipt]struct{}, len(settlements))
	var groups []settleGroup
	for _, s := range settlements {
		if _, again := seen[s.Receipt]; again {
			continue
		}
		seen[s.Receipt] = struct{}{}
		k := key{s.Receipt.Owner, s.Outcome, wholeMS(s.Delay), storableError(s.Err), s.Stages}
		if deleteAcked && s.Outcome == Ack {
			k.stages = 0
		}
		at, ok := index[k]
		if !ok {
			at = len(groups)
			index[k] = at
			groups = append(groups, settleGroup{Owner: k.owner, Outcome: k.outcome, DelayMS: delayMS(s), Error: k.err, Stages: k.stages})
		}
		groups[at].Seqs = append(groups[at].Seqs, s.Receipt.Seq)
	}
	return groups
}

// wholeMS rounds a delay to what the database takes, so that delays that differ by less are one group.
func wholeMS(delay time.Duration) time.Duration {
	if delay <= 0 {
		return delay
	}
	return max(delay.Truncate(time.Millisecond), time.Millisecond)
}

// delayMS returns nil for the database's default.
func delayMS(s Settlement) *int64 {
	if s.Outcome != Retry && s.Outcome != Release || s.Delay == 0 {
		return nil
	}
	ms := max(wholeMS(s.Delay), 0).Milliseconds()
	return &ms
}

// renewArg is a renewal on the wire.
type renewArg struct {
	LeaseMS int64         `json:"lease_ms"`
	Groups  []settleGroup `json:"groups"`
}

func newRenewArg(lease time.Duration, receipts []Receipt) renewArg {
	settlements := make([]Settlement, len(receipts))
	for i, r := range receipts {
		settlements[i] = Settlement{Receipt: r}
	}
	return renewArg{lease.Milliseconds(), groupSettlements(settlements, false)}
}
