package outbox

import (
	"errors"
	"fmt"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Errors that callers can test for with errors.Is.
var (
	// ErrClosed is returned by a Publisher or Subscriber after Close.
	ErrClosed = errors.New("outbox: the publisher or subscriber is closed")

	// ErrCompeting is returned by Subscribe when the topic already has a live subscription in this process: each message would
	// go to only one of the two.
	ErrCompeting = errors.New("outbox: the topic already has a subscription, and each message would go to only one of the two; to give each message to several handlers use an EventGroupProcessor or consumer groups; to share the work raise MaxInFlight, or set AllowCompeting")

	// ErrTxRequired is returned by a Publisher with RequireTx when there is no transaction.
	ErrTxRequired = errors.New("outbox: RequireTx is set and there is no transaction; publish inside InTx, or put one in the message's context with WithTx")

	// ErrLeaseLost is returned by Delivery.SettleTx when the message is no longer held by this delivery:
	// its lease expired and another worker took it. Roll the transaction back.
	ErrLeaseLost = errors.New("outbox: the lease is lost; another worker may hold the message")

	// ErrUnknownOutcome is returned when the answer to a commit was lost: the connection broke or the context ended after
	// the commit was sent, so the work may or may not have been committed. It is never returned when it is certain that
	// nothing was committed, nor on your own *sql.Tx, whose commit you call yourself. On a *sql.Conn the outbox cannot tell
	// whether you have begun a transaction, and returns it whenever the connection breaks. Check whether the work was
	// committed, or repeat it under the same ids (Message.ID, join.StartParams.ID): an error then says that it already exists.
	ErrUnknownOutcome = base.ErrUnknownOutcome

	// ErrDuplicateID is returned when a message is enqueued under an ID that already exists. Nothing was written, and a
	// caller's transaction can go on.
	ErrDuplicateID = base.ErrDuplicateID

	// ErrNotBlocked is returned, wrapped, by RequeueStream, SkipHead and DiscardStream when the stream is not blocked, and by
	// SkipGroupHead when there is no message that the consumer group has tried and not passed.
	ErrNotBlocked = errors.New("outbox: not blocked")

	// ErrSchema is returned when the tables or procedures are missing or older than the library.
	ErrSchema = base.ErrSchema

	// ErrSchemaNewer is returned by Migrate and Check when a newer version of the library has migrated the database: going
	// back would replace the procedures that newer processes use. errors.Is(err, ErrSchema) is true, too. An older process
	// may go on as long as it works with the newer schema; deploy the newer version, or restore a backup.
	ErrSchemaNewer = base.ErrSchemaNewer
)

// errMixedTx is returned when the messages of one Publish carry different transactions, or a transaction that differs from
// the Publisher's own.
var errMixedTx = field.Bad("messages", "carry transactions that differ from each other, or from the publisher's; publish them in separate calls")

// errPublishOtherTx is returned by a Publisher on a *sql.DB for messages that carry a transaction of InTx on another one: they
// would be published into the outbox of another database, if there is one.
var errPublishOtherTx = field.Bad("messages", "carry a transaction of another *sql.DB than the publisher's; "+
	"call InTx with the publisher's *sql.DB, or, if both are of the same database, put the transaction into their context with WithTx")

// errOtherTx is returned by a call without an Executor when its context carries a transaction of InTx on another *sql.DB.
var errOtherTx = field.Bad("ctx", "carries a transaction of another *sql.DB; pass the Executor that you mean, or a context without it")

// A LogWentBackError says that the database is older than a reader of its log: it was restored from a backup, or a replica
// that lagged behind took over. What the reader knows about positions no longer holds, and messages committed since may
// have positions that it had already passed. It goes on from the group's position; what the database lost stays lost.
type LogWentBackError struct {
	Store        string // of the outbox's configuration
	Group, Topic string
	Reader       int64 // the position that the reader had reached
	Position     int64 // the group's position in the database; 0 if it was not read
	Last         int64 // the last position in the log
}

func (e *LogWentBackError) Error() string {
	return fmt.Sprintf("outbox: the log has come back older than the reader of group %q, topic %q: the reader had reached position %d, "+
		"the group is at %d, and the log ends at %d", e.Group, e.Topic, e.Reader, e.Position, e.Last)
}

// A FieldError says which field of a message or a configuration is invalid, and why. Nothing was written when it is
// returned. Its fields are Field, a name such as "Topic" or "SubscriberConfig.MaxInFlight", and Reason, which says what is
// wrong and what to do.
type FieldError = field.Error

// Permanent marks an error that retrying cannot fix: the message fails at once, however many attempts are left.
// It needs middleware.Outcome on the router, which passes a handler's error on to the row. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Unavailable marks an error as an outage of something that the handler needs, such as a broker: the message was not really
// tried, so it is delivered again after the backoff without spending an attempt. Unavailable(nil) is nil.
func Unavailable(err error) error { return base.Unavailable(err) }

// IsPermanent reports whether err, or an error it wraps, was marked by Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}
