package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
)

// defaultRun is the most messages of a stream that a claim takes.
const defaultRun = 32

// errDiscarded is the LastError of messages ended by DiscardStream.
var errDiscarded = errors.New("discarded with the rest of its stream")

var errStreamNotBlocked = fmt.Errorf("%w: no message that has failed holds the stream up; see Outbox.BlockedStreams", ErrNotBlocked)

// A BlockedStream delivers nothing, because one of its messages has failed for good.
type BlockedStream struct {
	Topic, StreamKey string
	Head             MessageID // the message that has failed
	Since            time.Time // when it failed
	LastError        string
	Waiting          int // messages behind it as of the last claim, counted up to 10,000
}

// BlockedStreams lists blocked streams, those blocked the longest first. It returns a *FieldError for bad parameters.
func (o *Outbox) BlockedStreams(ctx context.Context, params ListParams) ([]BlockedStream, error) {
	if err := setListLimit("ListParams.Limit", &params.Limit); err != nil {
		return nil, err
	}
	if err := field.Key("ListParams.Topic", params.Topic); err != nil {
		return nil, err
	}
	streams, err := engine.Call(ctx, o.engine, o.db, opStreamList, struct {
		topicFilter
		Limit   int `json:"limit"`
		Counted int `json:"counted"`
	}{filterTopic(params.Topic), params.Limit, backlogCountCap}, nil, func(rows *sql.Rows, s *BlockedStream) error {
		var id string
		var since int64
		var lastError sql.NullString
		if err := rows.Scan(&s.Topic, &s.StreamKey, &id, &since, &lastError, &s.Waiting); err != nil {
			return err
		}
		s.Since, s.LastError = time.UnixMilli(since).UTC(), lastError.String
		var err error
		s.Head, err = base.ParseMessageID(id)
		return err
	})
	slices.SortFunc(streams, func(a, b BlockedStream) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.StreamKey, b.StreamKey))
	})
	return streams, err
}

// RequeueStream resumes a blocked stream at the message that has failed, with a fresh retry budget; LastError stays.
// It returns an error that wraps ErrNotBlocked, or a *FieldError for a bad topic or key.
func (o *Outbox) RequeueStream(ctx context.Context, topic, key string) error {
	return o.resumeStream(ctx, topic, key, false)
}

// SkipHead resumes a blocked stream after the message that has failed, which stays a dead letter: Requeue puts it back in its
// place, before messages that are not delivered by then. It returns an error that wraps ErrNotBlocked, or a *FieldError for a
// bad topic or key.
func (o *Outbox) SkipHead(ctx context.Context, topic, key string) error {
	return o.resumeStream(ctx, topic, key, true)
}

func (o *Outbox) resumeStream(ctx context.Context, topic, key string, skip bool) error {
	id, err := validateStream(topic, key)
	if err != nil {
		return err
	}
	_, err = o.batch(ctx, func(ctx context.Context, x Executor) (messages int, err error) {
		_, err = engine.Call(ctx, o.engine, x, opStreamResume, struct {
			StreamID int64 `json:"stream_id"`
			Skip     bool  `json:"skip"`
		}{id, skip}, nil, func(rows *sql.Rows, _ *struct{}) error { return rows.Scan(&messages) })
		if err == nil && messages == 0 {
			err = errStreamNotBlocked
		}
		return messages, err
	})
	if err == nil {
		o.wakeAfter(o.db, []string{topic})
	}
	return err
}

// DiscardStream fails all messages that wait in a blocked stream, and returns how many. They are kept as dead letters, like
// the message that blocks the stream. Messages published meanwhile are delivered. Messages published since a Subscriber last
// claimed are not part of it: only a claim puts them into their stream. It returns an error that wraps ErrNotBlocked, or a
// *FieldError for a bad topic or key. After any other error the stream is still blocked, and some of its messages may already
// have failed.
func (o *Outbox) DiscardStream(ctx context.Context, topic, key string) (total int, err error) {
	id, err := validateStream(topic, key)
	if err != nil {
		return 0, err
	}
	arg := takeArg{StreamID: id, Worker: o.config.WorkerName, LeaseMS: discardLease.Milliseconds(), Limit: maxBatch}
	for {
		var taken []WorkItemID
		_, err := o.batch(ctx, func(ctx context.Context, x Executor) (n int, err error) {
			taken, err = o.takeStream(ctx, x, &arg)
			return len(taken), err
		})
		if err != nil {
			return total, err
		}
		if len(taken) == 0 {
			return total, o.SkipHead(ctx, topic, key)
		}
		ended, err := o.settleBatch(ctx, o.db, settleAll(arg.Owner, taken, Fail, errDiscarded), settleOptions{over: []OwnerToken{arg.Owner}, skipFailed: true})
		if err != nil {
			return total, err
		}
		total += len(taken) - len(ended.refused)
	}
}

// discardLease is how long a stream is held while a batch of its messages is ended.
const discardLease = time.Minute

type takeArg struct {
	StreamID int64      `json:"stream_id"`
	Owner    OwnerToken `json:"owner"`
	Worker   string     `json:"worker"`
	LeaseMS  int64      `json:"lease_ms"`
	Until    *int64     `json:"until,omitempty"`
	Limit    int        `json:"limit"`
}

// takeStream claims messages that wait in a blocked stream, and records in arg where the stream ended at first.
func (o *Outbox) takeStream(ctx context.Context, x Executor, arg *takeArg) ([]WorkItemID, error) {
	arg.Owner = base.NewOwnerToken()
	var until int64
	taken, err := engine.Call(ctx, o.engine, x, opStreamTake, arg, nil, func(rows *sql.Rows, seq *WorkItemID) error { return rows.Scan(seq, &until) })
	if err != nil {
		return nil, err
	}
	at := slices.Index(taken, 0)
	if at < 0 {
		return nil, errStreamNotBlocked
	}
	arg.Until = &until
	return slices.Delete(taken, at, at+1), nil
}

func validateStream(topic, key string) (id int64, err error) {
	if key == "" {
		return 0, field.Bad("StreamKey", "is empty; name the stream")
	}
	if err := (&Message{Topic: topic, StreamKey: key}).validate(); err != nil {
		return 0, err
	}
	return streamID(topic, key), nil
}
