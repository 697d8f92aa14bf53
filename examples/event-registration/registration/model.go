// Package registration decides who has a seat: it is the domain of the service, and knows neither HTTP nor a broker.
//
// Whatever changes an event locks its row first, then registrations, then bans. Under that lock each registration gets the
// event's next number, so the order of numbers is the order of commits, and the waitlist is served in that order.
package registration

import "errors"

// Status is where a registration stands.
type Status string

// The states of a registration.
const (
	Active     Status = "active"
	Waitlisted Status = "waitlisted"
	Canceled   Status = "canceled"
	Expired    Status = "expired"  // an offered seat was not taken in time
	Rejected   Status = "rejected" // kicked or banned
)

// The states of an event. Only an open one admits anybody, and a canceled one stays canceled.
const (
	EventOpen     = "open"
	EventClosed   = "closed"
	EventCanceled = "canceled"
	EventSettled  = "settled" // canceled, and everybody has been told
)

// An Event is what the catalog says of it, and who is in. Capacity 0 is unlimited, and so is a WaitlistLimit of -1.
type Event struct {
	ID            string
	Version       int64 // of the snapshot
	Title         string
	OrganizerID   string
	Status        string
	Capacity      int
	WaitlistLimit int
	Active        int
	Waiting       int
	LastNumber    int64
	Revision      int64 // of the messages about it
}

// hasSeat reports whether one more may become active.
func (e *Event) hasSeat() bool { return e.Capacity == 0 || e.Active < e.Capacity }

// SeatsLeft is nil if there is no limit.
func (e *Event) SeatsLeft() *int {
	if e.Capacity == 0 {
		return nil
	}
	left := max(e.Capacity-e.Active, 0)
	return &left
}

// A Registration is a user's place in an event. Times are milliseconds since 1970, by the database's clock.
type Registration struct {
	EventID    string
	UserID     string
	Status     Status
	Number     int64
	CreatedAt  int64
	UpdatedAt  int64
	OfferUntil int64 // when an offered seat expires, or 0
}

func (r *Registration) live() bool { return r.Status == Active || r.Status == Waitlisted }

// An Actor is who asks.
type Actor struct {
	UserID string
	Admin  bool
}

// Moderates reports whether somebody may kick and ban, and see who is there.
func (a Actor) Moderates(e *Event) bool {
	return a.Admin || e.OrganizerID != "" && a.UserID == e.OrganizerID
}

// Refusals. Whoever returns one has changed nothing.
var (
	ErrEventNotFound  = errors.New("there is no such event")
	ErrEventClosed    = errors.New("the event admits nobody")
	ErrEventFull      = errors.New("the event and its waitlist are full")
	ErrBanned         = errors.New("you are banned from this event")
	ErrForbidden      = errors.New("only the organizer of the event may do this")
	ErrNotRegistered  = errors.New("there is no such registration")
	ErrNotBanned      = errors.New("there is no such ban")
	ErrAlreadyReached = errors.New("it is so already")
)
