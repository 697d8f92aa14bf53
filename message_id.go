package outbox

import "github.com/incursa/watermill-outbox/internal/base"

// MessageID names a message for its whole life, across retries and outside its database: joins, inboxes and brokers use it.
// It is 16 bytes that grow with time in the byte order of its database, and has the text form of a UUID: String,
// MarshalText, UnmarshalText, ParseMessageID.
type MessageID = base.MessageID

// OwnerToken names one claim: together with a WorkItemID it proves that the message is held. It is 16 bytes, and has the
// text form of a UUID.
type OwnerToken = base.OwnerToken

// WorkItemID is the row's key, assigned by the database: an integer that grows with every insert and is never reused.
type WorkItemID = base.WorkItemID

// ParseMessageID reads the usual text form of a UUID.
func ParseMessageID(text string) (MessageID, error) { return base.ParseMessageID(text) }
