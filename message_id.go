package outbox

import "github.com/incursa/watermill-outbox/internal/base"

// MessageID names a message for its whole life, across retries and outside its database: joins, inboxes and brokers
// use it (the specification's OutboxMessageIdentifier). It is 16 bytes, grows with time in the byte order of its database,
// and is text as a UUID is: String, MarshalText, UnmarshalText, ParseMessageID.
type MessageID = base.MessageID

// OwnerToken names one claim. Whoever presents it together with a WorkItemID holds that message. It is 16 bytes, and text
// as a UUID is.
type OwnerToken = base.OwnerToken

// WorkItemID is the row's key, given by the database (the specification's OutboxWorkItemIdentifier): an integer that grows
// with every insert and is never used again.
type WorkItemID = base.WorkItemID

// ParseMessageID reads the usual text form of a UUID.
func ParseMessageID(text string) (MessageID, error) { return base.ParseMessageID(text) }
