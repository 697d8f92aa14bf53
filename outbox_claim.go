package outbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// ClaimParams say what a claim takes.
type ClaimParams struct {
	// Topics are tried in this order, each up to its quota, until Limit is reached. Each is listed once. Required.
	Topics []TopicQuota

	// Limit is the most messages to take, 1 to 1,000. Defaults to 100.
	Limit int

	// Lease is how long the messages are held, 1 ms to 24 h. Defaults to 30 s.
	Lease time.Duration

	// Owner is the token of this claim. Use a token for one claim only. Defaults to a new one.
	Owner OwnerToken

	// Bytes limits payload and headers, in bytes: the claim ends before the first message that does not fit, but the very first
	// message may be larger. Defaults to 0: no limit.
	Bytes int64

	// GiveBack is about how many messages with expired leases are first made ready again, at most 1,000; messages of one claim
	// stay together. Defaults to 100; a negative number means none.
	GiveBack int

	// Run is the most messages of one stream to take, 1 to 1,000. Fewer are taken while many streams wait. Defaults to 32.
	Run int

	allFit bool // the first message must fit, too

	// from is where the claim begins in each topic: it skips messages that became due earlier. While an old snapshot is open,
	// this keeps the database from reading the dead index entries of everything claimed since.
	from map[string]time.Time

	share *streamShare // of streams, if there are several workers
}

// A TopicQuota is the most messages that a claim takes from a topic. A Quota of 0 means the claim's limit.
type TopicQuota struct {
	Topic string
	Quota int
}

// A topicArg is a topic of a claim on the wire.
type topicArg struct {
	Key    int64  `json:"key"`
	Quota  int    `json:"quota"`
	FromMS *int64 `json:"from_ms,omitempty"`
}

func (p *ClaimParams) setDefaults() {
	field.Default(&p.Limit, 100)
	field.Default(&p.Lease, 30*time.Second)
	if p.Owner == (OwnerToken{}) {
		p.Owner = base.NewOwnerToken()
	}
	field.Default(&p.Run, defaultRun)
	switch {
	case p.GiveBack == 0:
		p.GiveBack = 100
	case p.GiveBack < 0:
		p.GiveBack = 0
	}
}

func (p *ClaimParams) validate() error {
	switch {
	case len(p.Topics) == 0:
		return field.Bad("ClaimParams.Topics", "is empty; name the topics to claim")
	case p.Limit < 1 || p.Limit > maxBatch:
		return field.Bad("ClaimParams.Limit", "%d is not between 1 and %d", p.Limit, maxBatch)
	case p.Bytes < 0:
		return field.Bad("ClaimParams.Bytes", "is negative; 0 means no limit")
	case p.Run < 1 || p.Run > maxBatch:
		return field.Bad("ClaimParams.Run", "%d is not between 1 and %d", p.Run, maxBatch)
	case p.GiveBack > maxBatch:
		return field.Bad("ClaimParams.GiveBack", "%d is more than %d", p.GiveBack, maxBatch)
	}
	listed := make(map[string]bool, len(p.Topics))
	for _, t := range p.Topics {
		if t.Quota < 0 {
			return field.Bad("ClaimParams.Topics", "the quota of %q is negative", t.Topic)
		}
		if listed[t.Topic] {
			return field.Bad("ClaimParams.Topics", "%q is listed twice", t.Topic)
		}
		listed[t.Topic] = true
		if err := field.Key("ClaimParams.Topics", t.Topic); err != nil {
			return err
		}
	}
	return validateLease("ClaimParams.Lease", p.Lease)
}

func validateLease(name string, lease time.Duration) error {
	if lease < time.Millisecond || lease > limits.Longest {
		return field.Bad(name, "%v is not between 1 ms and %v", lease, limits.Longest)
	}
	return nil
}

// Claim takes due messages under a lease, in one round trip and one transaction. No message is ever held by two claims. It
// may return fewer messages than are due, so ask again; an empty list is not an error. It returns a *FieldError for bad
// parameters.
func (o *Outbox) Claim(ctx context.Context, params ClaimParams) ([]Claimed, error) {
	claimed, err := o.claim(ctx, params)
	if len(claimed) == 0 {
		return nil, err
	}
	list := make([]Claimed, len(claimed))
	for i, c := range claimed {
		list[i] = *c
	}
	return list, err
}

// claim is Claim without the copies: each message is kept by itself until it is settled.
func (o *Outbox) claim(ctx context.Context, params ClaimParams) ([]*Claimed, error) {
	params.setDefaults()
	if err := params.validate(); err != nil {
		return nil, err
	}
	started := time.Now()
	scanner := newClaimScanner()
	claimed, err := engine.Call(ctx, o.engine, o.db, opClaim, o.claimArg(params), nil, func(rows *sql.Rows, c **Claimed) error {
		if err := scanner.scan(rows); err != nil {
			return err
		}
		*c = scanner.message()
		(*c).Receipt.Owner = params.Owner
		return nil
	})
	return o.took(ctx, params, claimed, started, err)
}

// claimArg is a claim on the wire.
type claimArg struct {
	Worker   string     `json:"worker"`
	Owner    OwnerToken `json:"owner"`
	LeaseMS  int64      `json:"lease_ms"`
	Limit    int        `json:"limit"`
	Run      int        `json:"run"`
	Bytes    int64      `json:"bytes,omitempty"`
	First    bool       `json:"first"`
	GiveBack int        `json:"give_back"`
	Waits    []int64    `json:"waits,omitempty"`
	Topics   []topicArg `json:"topics"`

	Share *streamShare `json:"share,omitempty"`
}

func (o *Outbox) claimArg(params ClaimParams) claimArg {
	topics := make([]topicArg, len(params.Topics))
	for i, t := range params.Topics {
		topics[i] = topicArg{Key: topicKey(t.Topic), Quota: min(t.Quota, params.Limit)}
		if t.Quota == 0 {
			topics[i].Quota = params.Limit
		}
		if from, ok := params.from[t.Topic]; ok {
			ms := from.UnixMilli()
			topics[i].FromMS = &ms
		}
	}
	arg := claimArg{o.config.WorkerName, params.Owner, params.Lease.Milliseconds(), params.Limit, params.Run, params.Bytes, !params.allFit, params.GiveBack, nil, topics, params.share}
	if params.GiveBack > 0 {
		arg.Waits = expiryWaits(o.config.ExpiryBackoff)
	}
	return arg
}
