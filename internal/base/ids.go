package base

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
)

// MessageID names a message for its whole life, across retries and outside its database: joins, inboxes and brokers
// use it. It grows with time in the byte order of its database.
type MessageID [16]byte

// OwnerToken names one claim: together with a WorkItemID it proves that the message is held.
type OwnerToken [16]byte

// JoinID names a join for its whole life.
type JoinID [16]byte

// WorkItemID is the row's key, assigned by the database: it grows with every insert and is never reused.
type WorkItemID int64

// NewOwnerToken returns a random token for one claim.
func NewOwnerToken() OwnerToken { return OwnerToken(uuid.New()) }

// ParseMessageID reads the usual text form of a UUID.
func ParseMessageID(text string) (MessageID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return MessageID{}, fmt.Errorf("parse the message id: %w", err)
	}
	return MessageID(id), nil
}

// ParseJoinID reads the usual text form of a UUID.
func ParseJoinID(text string) (JoinID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return JoinID{}, fmt.Errorf("parse the join id: %w", err)
	}
	return JoinID(id), nil
}

// String returns the usual text form of a UUID.
func (id MessageID) String() string { return uuid.UUID(id).String() }

// String returns the usual text form of a UUID.
func (o OwnerToken) String() string { return uuid.UUID(o).String() }

// String returns the usual text form of a UUID.
func (id JoinID) String() string { return uuid.UUID(id).String() }

// MarshalText returns the usual text form of a UUID.
func (id JoinID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText reads the usual text form of a UUID.
func (id *JoinID) UnmarshalText(text []byte) error { return (*uuid.UUID)(id).UnmarshalText(text) }

// MarshalText returns the usual text form of a UUID.
func (id MessageID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// MarshalText returns the usual text form of a UUID.
func (o OwnerToken) MarshalText() ([]byte, error) { return uuid.UUID(o).MarshalText() }

// UnmarshalText reads the usual text form of a UUID.
func (id *MessageID) UnmarshalText(text []byte) error { return (*uuid.UUID)(id).UnmarshalText(text) }

// UnmarshalText reads the usual text form of a UUID.
func (o *OwnerToken) UnmarshalText(text []byte) error { return (*uuid.UUID)(o).UnmarshalText(text) }

// NewTimeOrderedID returns a UUIDv7: the time comes first, for PostgreSQL and SQLite, which compare from the first byte.
func NewTimeOrderedID() (MessageID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return MessageID{}, fmt.Errorf("make a message id: %w", err)
	}
	return MessageID(id), nil
}

// NewSQLServerID returns a UUIDv8 with the parts of a UUIDv7 in the order in which SQL Server compares: bytes 10 to 15, then
// 8 and 9, then the rest. They hold the time, its fraction, and the random part.
func NewSQLServerID() (MessageID, error) {
	v7, err := NewTimeOrderedID()
	if err != nil {
		return MessageID{}, err
	}
	var id MessageID
	copy(id[10:16], v7[0:6])
	id[8] = 0x80 | v7[6]&0x0f<<2 | v7[7]>>6 // the variant, then the upper bits of the 12-bit fraction
	id[9] = v7[7]<<2 | v7[8]&0x03
	copy(id[0:6], v7[10:16])
	id[6] = 0x80 | v7[8]>>2&0x0f // the version
	id[7] = v7[9]
	return id, nil
}

// TopicKey is a topic in eight bytes, for indexes of fixed width: the first bytes of its SHA-256, the same on every database.
func TopicKey(topic string) int64 {
	sum := sha256.Sum256([]byte(topic))
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // the bits matter, not the number
}
