package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/idempotency"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

// A problem is a refusal as RFC 9457 has it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`

	retryAfter string
}

func newProblem(status int, code, detail string) problem {
	return problem{Type: "urn:registration:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func (p problem) Error() string { return p.Code + ": " + p.Detail }

func (p problem) retry(after string) problem {
	p.retryAfter = after
	return p
}

func (p problem) body() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		return nil // strings and a number
	}
	return append(body, '\n')
}

func (p problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	if p.retryAfter != "" {
		w.Header().Set("Retry-After", p.retryAfter)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.body()) // the client may have gone
}

// invalid is a request that no retry can mend.
func invalid(detail string) problem {
	return newProblem(http.StatusBadRequest, "request.invalid", detail)
}

// refusals are what the domain refuses, stored under the key like any response.
var refusals = []struct {
	err    error
	status int
	code   string
}{
	{registration.ErrEventNotFound, http.StatusNotFound, "event.not_found"},
	{registration.ErrEventClosed, http.StatusGone, "event.closed"},
	{registration.ErrEventFull, http.StatusConflict, "event.full"},
	{registration.ErrBanned, http.StatusForbidden, "join.banned"},
	{registration.ErrForbidden, http.StatusForbidden, "auth.forbidden"},
	{registration.ErrNotRegistered, http.StatusNotFound, "join.not_found"},
	{registration.ErrNotBanned, http.StatusNotFound, "ban.not_found"},
	{registration.ErrAlreadyReached, http.StatusConflict, "state_already_reached"},
}

func refusal(err error) (problem, bool) {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return newProblem(r.status, r.code, r.err.Error()), true
		}
	}
	return problem{}, false
}

// asProblem finds what to tell a client of an error. What it does not know is said in the log alone.
func asProblem(err error) problem {
	var p problem
	if errors.As(err, &p) {
		return p
	}
	if p, ok := refusal(err); ok {
		return p
	}
	switch {
	case errors.Is(err, idempotency.ErrMismatch):
		return newProblem(http.StatusUnprocessableEntity, "idempotency_key.mismatch", err.Error())
	case errors.Is(err, idempotency.ErrInFlight):
		return newProblem(http.StatusConflict, "idempotency_key.in_flight", err.Error()).retry("1")
	case errors.Is(err, context.DeadlineExceeded):
		return newProblem(http.StatusServiceUnavailable, "timeout", "the request took too long").retry("1")
	}
	if database.Away(err) {
		return newProblem(http.StatusServiceUnavailable, "unavailable", "the database does not answer").retry("1")
	}
	return newProblem(http.StatusInternalServerError, "internal", "")
}
