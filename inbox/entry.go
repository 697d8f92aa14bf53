package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

// The operations of the schema files.
const (
	opAdd   = "outbox_entry_add"
	opGet   = "outbox_entry_get"
	opSave  = "outbox_entry_save"
	opPurge = "outbox_entry_purge"
)

// maxBatch is the most entries that a statement touches.
const maxBatch = 1000

// An Entry is what the inbox knows of a message. Times are UTC, by the database's clock.
type Entry struct {
	Key         Key
	Hash        Hash // of its content
	FirstSeenAt time.Time
	LastSeenAt  time.Time

	// Seen counts how often the message arrived, including the first time.
	Seen int

	// QueueID is the id of the message in the queue, or zero if the message was handled as it was received.
	QueueID outbox.MessageID

	// ProcessedAt is when the handler's effects were committed together with the entry, or zero.
	ProcessedAt time.Time

	// Status is that of the message in the queue, or outbox.Done if there is none, or no longer one.
	Status outbox.Status

	// Attempts and LastError describe the message in the queue. An attempt that fails while a message is being received
	// is rolled back and leaves no trace here.
	Attempts  int
	LastError string

	// Result is what SaveResult stored, or nil.
	Result []byte
}

// First reports whether the entry was new when Begin returned it.
func (e *Entry) First() bool { return e.Seen == 1 }

// wireKey is a key on the wire.
type wireKey struct {
	N         int    `json:"n"`
	Source    string `json:"source"`
	MessageID string `json:"message_id"`
	Handler   string `json:"handler"`
	Hash      string `json:"hash,omitempty"`
	QueueID   string `json:"queue_id,omitempty"`
}

func (k Key) wire(n int) wireKey {
	return wireKey{N: n, Source: k.Source, MessageID: k.MessageID, Handler: k.Handler}
}

type wireKeys struct {
	Entries []wireKey `json:"entries"`
}

// Begin records a message as processed, in the caller's transaction, before its effects are written in the same transaction.
// If there is an entry already, it counts the arrival and returns the entry: then only acknowledge the message, and publish
// the Result again. It returns a *MismatchError if the content differs.
//
// While another open transaction has recorded the same key, Begin waits for it; if that is rolled back, the message is new
// here. A duplicate leaves the transaction usable. middleware.Inbox does all this.
func (in *Inbox) Begin(ctx context.Context, tx *sql.Tx, key Key, hash Hash) (Entry, error) {
	if tx == nil {
		return Entry{}, base.ErrNilDB
	}
	if err := key.validate(); err != nil {
		return Entry{}, err
	}
	wire := key.wire(0)
	wire.Hash = hash.String()
	entries, err := in.add(ctx, tx, []wireKey{wire})
	if err != nil {
		return Entry{}, err
	}
	return entries[0], in.compare(&entries[0], hash)
}

// add records what is new, and returns an entry for each key.
func (in *Inbox) add(ctx context.Context, x outbox.Executor, keys []wireKey) ([]Entry, error) {
	entries, err := in.entries(ctx, x, opAdd, keys)
	if err == nil && len(entries) != len(keys) {
		err = fmt.Errorf("%w: %d of %d were entered", ErrNotFound, len(entries), len(keys))
	}
	return entries, err
}

// compare reports different content under one key.
func (in *Inbox) compare(e *Entry, received Hash) error {
	if e.Hash == received {
		return nil
	}
	err := &MismatchError{Key: e.Key, Known: e.Hash, Received: received}
	in.logger.Error("A message has a known key and different content", err, nil)
	return outbox.Permanent(err)
}

// SaveResult marks the entry as processed, in the transaction of the handler's effects, and stores the handler's result.
// After Begin it is needed only if there is a result; for a message of the queue it is what marks the entry. It returns
// ErrNotFound if there is no entry.
func (in *Inbox) SaveResult(ctx context.Context, tx *sql.Tx, key Key, result []byte) error {
	if tx == nil {
		return base.ErrNilDB
	}
	if err := key.validate(); err != nil {
		return err
	}
	if result == nil {
		result = []byte{}
	}
	saved := 0
	err := in.inside.RunWithBytes(ctx, tx, opSave, key.wire(0), result, func(rows *sql.Rows) error { return rows.Scan(&saved) })
	if err == nil && saved == 0 {
		err = fmt.Errorf("%w: %v", ErrNotFound, key)
	}
	return err
}

// Get reads entries in the order of the keys. Unknown keys are left out.
func (in *Inbox) Get(ctx context.Context, keys ...Key) ([]Entry, error) {
	var found []Entry
	for len(keys) > 0 {
		n := min(len(keys), maxBatch)
		wire := make([]wireKey, n)
		for i, key := range keys[:n] {
			if err := key.validate(); err != nil {
				return nil, err
			}
			wire[i] = key.wire(i)
		}
		batch, err := in.entries(ctx, in.db, opGet, wire)
		if err != nil {
			return nil, err
		}
		found = append(found, batch...)
		keys = keys[n:]
	}
	return found, nil
}

// entries runs an operation that returns entries, in the order of the keys.
func (in *Inbox) entries(ctx context.Context, x outbox.Executor, op string, keys []wireKey) ([]Entry, error) {
	byKey := make([]Entry, len(keys))
	err := in.inside.Run(ctx, x, op, wireKeys{keys}, func(rows *sql.Rows) error {
		n, e, err := scanEntry(rows)
		if err != nil {
			return err
		}
		e.Key = Key{Source: keys[n].Source, MessageID: keys[n].MessageID, Handler: keys[n].Handler}
		byKey[n] = e
		return nil
	})
	if err != nil {
		return nil, err
	}
	var found []Entry
	for i := range byKey {
		if byKey[i].Seen > 0 {
			found = append(found, byKey[i])
		}
	}
	return found, nil
}

func scanEntry(rows *sql.Rows) (n int, e Entry, err error) {
	var hash []byte
	var first, last int64
	var queueID, lastError sql.NullString
	var processed sql.NullInt64
	if err := rows.Scan(&n, &hash, &first, &last, &e.Seen, &queueID, &processed, &e.Status, &e.Attempts, &lastError, &e.Result); err != nil {
		return 0, Entry{}, err
	}
	copy(e.Hash[:], hash)
	e.FirstSeenAt, e.LastSeenAt = time.UnixMilli(first).UTC(), time.UnixMilli(last).UTC()
	if processed.Valid {
		e.ProcessedAt = time.UnixMilli(processed.Int64).UTC()
	}
	if queueID.Valid {
		if e.QueueID, err = base.ParseMessageID(queueID.String); err != nil {
			return 0, Entry{}, err
		}
	}
	e.LastError = lastError.String
	return n, e, nil
}
