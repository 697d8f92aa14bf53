package outbox

import (
	"errors"
	"fmt"

	"github.com/incursa/watermill-outbox/internal/base"
)

// Errors that callers can test for with errors.Is.
var (
	// ErrClosed is returned by a Publisher or Subscriber after Close.
	ErrClosed = errors.New("outbox: closed")

	// ErrCompeting is returned by Subscribe when the topic has a live subscription in this process already: each message would
	// come to one of the two.
	ErrCompeting = errors.New("outbox: the topic has a subscription already, and each message would come to one of the two; for several handlers of each message use an EventGroupProcessor or consumer groups, to share the work raise MaxInFlight, or set AllowCompeting")

	// ErrTxRequired is returned by a Publisher with RequireTx when no transaction was given.
	ErrTxRequired = errors.New("outbox: RequireTx is set and there is no transaction; publish inside InTx, or put one in the message's context with WithTx")

	// ErrMixedTx is returned when the messages of one Publish carry different transactions, or another than that of
	// the Publisher itself.
	ErrMixedTx = errors.New("outbox: one Publish can write to one transaction only, and its messages or its publisher name several; publish them in separate calls")

	// ErrLeaseLost is returned by Delivery.SettleTx when the message is no longer held by this delivery:
	// its lease expired and another worker took it. Roll the transaction back.
	ErrLeaseLost = errors.New("outbox: the lease is lost; another worker may hold the message")

	// ErrUnknownOutcome is returned when the answer to a commit was lost: the connection broke or the context ended after
	// it was sent, and the work may have been committed or not. It is never returned when nothing was committed for sure,
	// nor for a transaction of yours, whose commit is yours to judge. Look whether the work is there, or repeat it
	// under the same ids (Message.ID, join.StartParams.ID): what is there already is then told by an error.
	ErrUnknownOutcome = errors.New("outbox: the answer to a commit was lost, and the work may have been committed; look whether it was, or repeat it under the same ids")

	// ErrDuplicateID is returned when a message is enqueued under an ID that is in the table already. Nothing was written,
	// and a caller's transaction goes on.
	ErrDuplicateID = errors.New("outbox: a message with this id is there already; leave Message.ID empty for a new one")

	// ErrStreamNotBlocked is returned where a stream is to go on that nothing stops.
	ErrStreamNotBlocked = errors.New("outbox: the stream is not blocked; see Outbox.BlockedStreams")

	// ErrSchema is returned when the tables or procedures are missing or older than the library.
	ErrSchema = errors.New("outbox: the schema is missing or out of date; run outbox.Migrate, or see outbox.Check for what is missing")

	// ErrSchemaNewer is returned by Migrate, and by Check, when a newer version of the library has migrated the database:
	// going back would put older procedures under the feet of the newer processes. It is an ErrSchema too. An older process
	// can go on as far as it gets along with the newer schema; deploy the newer one, or restore a backup.
	ErrSchemaNewer = errors.New("outbox: a newer version has migrated the database, and Migrate never goes back")
)

// A LogWentBackError says that the database has come back older than a reader of its log, from a backup or a replica that
// lagged behind: what the reader knows of positions no longer holds, and messages that were committed since have got
// positions that it had passed. It goes on from the group's position; what was lost with the database stays lost.
type LogWentBackError struct {
	Store        string // of the outbox's configuration
	Group, Topic string
	Reader       int64 // how far the reader had come
	Position     int64 // how far the group has come in the database; 0 where that was not looked at
	Last         int64 // the last position that was given there
}

func (e *LogWentBackError) Error() string {
	return fmt.Sprintf("outbox: the log has come back older than the reader of group %q, topic %q: the reader had come to position %d, "+
		"the group stands at %d, and the log ends at %d", e.Group, e.Topic, e.Reader, e.Position, e.Last)
}

// A FieldError says which field of a message or a configuration is not usable, and why.
// Nothing was written when it is returned.
type FieldError struct {
	Field  string // as in Go, e.g. "Topic" or "SubscriberConfig.MaxInFlight"
	Reason string // what is wrong and what to do
}

func (e *FieldError) Error() string { return fmt.Sprintf("outbox: %s: %s", e.Field, e.Reason) }

func badField(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// inConfig names the config to which a bad field belongs that New has found.
func inConfig(config string, err error) error {
	var bad *FieldError
	if errors.As(err, &bad) {
		return &FieldError{Field: config + "." + bad.Field, Reason: bad.Reason}
	}
	return err
}

// Permanent marks an error as one that no retry will mend: the message is failed at once, whatever attempts are left.
// It needs middleware.Outcome on the router, which carries a handler's error to the row. Permanent(nil) is nil.
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
// tried. It is delivered again after the backoff, and no attempt is spent. Unavailable(nil) is nil.
func Unavailable(err error) error { return base.Unavailable(err) }

// IsPermanent reports whether err, or an error it wraps, was marked by Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}
