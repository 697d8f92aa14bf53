package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

type registrationBody struct {
	EventID    string    `json:"event_id"`
	UserID     string    `json:"user_id"`
	Status     string    `json:"status"`
	Number     int64     `json:"number"`
	Place      int       `json:"place,omitempty"` // on the waitlist
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
	OfferUntil time.Time `json:"offer_until,omitzero"`
}

func newRegistration(r registration.Registration) registrationBody {
	body := registrationBody{EventID: r.EventID, UserID: r.UserID, Status: string(r.Status), Number: r.Number,
		CreatedAt: time.UnixMilli(r.CreatedAt).UTC(), UpdatedAt: time.UnixMilli(r.UpdatedAt).UTC()}
	if r.OfferUntil > 0 {
		body.OfferUntil = time.UnixMilli(r.OfferUntil).UTC()
	}
	return body
}

type banBody struct {
	EventID   string    `json:"event_id"`
	UserID    string    `json:"user_id"`
	Reason    string    `json:"reason"`
	BannedBy  string    `json:"banned_by"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

func newBan(b registration.Ban) banBody {
	body := banBody{EventID: b.EventID, UserID: b.UserID, Reason: b.Reason, BannedBy: b.BannedBy, CreatedAt: time.UnixMilli(b.CreatedAt).UTC()}
	if b.ExpiresAt > 0 {
		body.ExpiresAt = time.UnixMilli(b.ExpiresAt).UTC()
	}
	return body
}

type page struct {
	Items      []registrationBody `json:"items"`
	NextCursor string             `json:"next_cursor,omitempty"`
}

type statsBody struct {
	EventID   string `json:"event_id"`
	Title     string `json:"title"`
	Status    string `json:"status"`
	Capacity  int    `json:"capacity"`
	Active    int    `json:"active"`
	Waiting   int    `json:"waiting"`
	SeatsLeft *int   `json:"seats_left"`
}

func (s *Server) my(w http.ResponseWriter, r *http.Request, actor registration.Actor) error {
	own, place, err := s.service.My(r.Context(), r.PathValue("id"), actor.UserID)
	if err != nil {
		return err
	}
	body := newRegistration(own)
	body.Place = place
	return writeData(w, http.StatusOK, body)
}

var statuses = []registration.Status{"", registration.Active, registration.Waitlisted, registration.Canceled, registration.Expired, registration.Rejected}

func (s *Server) mine(w http.ResponseWriter, r *http.Request, actor registration.Actor) error {
	limit, at, rest, err := readPage(r, math.MaxInt64)
	if err != nil {
		return err
	}
	status := registration.Status(r.URL.Query().Get("status"))
	if !slices.Contains(statuses, status) {
		return invalid("status is not one of those of a registration")
	}
	items, err := s.service.Mine(r.Context(), actor.UserID, status, registration.Before{CreatedAt: at, EventID: rest}, limit+1)
	if err != nil {
		return err
	}
	return writePage(w, items, limit, func(last registration.Registration) string { return cursor(last.CreatedAt, last.EventID) })
}

func (s *Server) list(status registration.Status) handler {
	return func(w http.ResponseWriter, r *http.Request, actor registration.Actor) error {
		limit, after, _, err := readPage(r, 0)
		if err != nil {
			return err
		}
		items, err := s.service.List(r.Context(), r.PathValue("id"), status, after, limit+1, actor)
		if err != nil {
			return err
		}
		return writePage(w, items, limit, func(last registration.Registration) string { return cursor(last.Number, "") })
	}
}

func (s *Server) stats(w http.ResponseWriter, r *http.Request, actor registration.Actor) error {
	e, err := s.event(r.Context(), r.PathValue("id"), actor)
	if err != nil {
		return err
	}
	return writeData(w, http.StatusOK, statsBody{EventID: e.ID, Title: e.Title, Status: e.Status, Capacity: e.Capacity,
		Active: e.Active, Waiting: e.Waiting, SeatsLeft: e.SeatsLeft()})
}

// readPage reads limit and cursor: a number, from start on, and an id.
func readPage(r *http.Request, start int64) (limit int, number int64, id string, err error) {
	query := r.URL.Query()
	limit, number = 20, start
	if text := query.Get("limit"); text != "" {
		limit, err = strconv.Atoi(text)
		if err != nil || limit < 1 || limit > 100 {
			return 0, 0, "", invalid("limit is not 1 to 100")
		}
	}
	if text := query.Get("cursor"); text != "" {
		plain, err := base64.RawURLEncoding.DecodeString(text)
		first, second, found := strings.Cut(string(plain), "|")
		number, parseErr := strconv.ParseInt(first, 10, 64)
		if err != nil || parseErr != nil || !found || second != "" && !validID(second) {
			return 0, 0, "", invalid("cursor is not one of ours")
		}
		return limit, number, second, nil
	}
	return limit, number, "", nil
}

func cursor(number int64, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(number, 10) + "|" + id))
}

// writePage writes limit items; one more than that says that there is a next page.
func writePage(w http.ResponseWriter, items []registration.Registration, limit int, next func(registration.Registration) string) error {
	out := page{Items: []registrationBody{}}
	if len(items) > limit {
		items = items[:limit]
		out.NextCursor = next(items[limit-1])
	}
	for _, r := range items {
		out.Items = append(out.Items, newRegistration(r))
	}
	return writeData(w, http.StatusOK, out)
}

func dataBody(data any) ([]byte, error) {
	body, err := json.Marshal(struct {
		Data any `json:"data"`
	}{data})
	return append(body, '\n'), err
}

func writeData(w http.ResponseWriter, status int, data any) error {
	body, err := dataBody(data)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(body)
	return ignoreGone(err)
}

// ignoreGone drops the error of a client that has gone: there is nobody to answer.
func ignoreGone(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}
