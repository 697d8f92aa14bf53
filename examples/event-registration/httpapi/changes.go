package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/incursa/watermill-outbox/examples/event-registration/idempotency"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

// A command is the body of a POST. Only moderation has one that is not empty.
type command struct {
	UserID    string     `json:"user_id"`
	Reason    string     `json:"reason"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// An action changes something in a transaction, and returns what to answer.
type action func(ctx context.Context, tx *sql.Tx, event string, c command, actor registration.Actor) (any, error)

func (s *Server) actions() map[string]action {
	return map[string]action{
		"join": func(ctx context.Context, tx *sql.Tx, event string, _ command, actor registration.Actor) (any, error) {
			r, err := s.service.Join(ctx, tx, event, actor.UserID)
			return newRegistration(r), err
		},
		"cancel": func(ctx context.Context, tx *sql.Tx, event string, _ command, actor registration.Actor) (any, error) {
			r, err := s.service.Cancel(ctx, tx, event, actor.UserID)
			return newRegistration(r), err
		},
		"kick": func(ctx context.Context, tx *sql.Tx, event string, c command, actor registration.Actor) (any, error) {
			r, err := s.service.Kick(ctx, tx, event, c.UserID, c.Reason, actor)
			return newRegistration(r), err
		},
		"ban": func(ctx context.Context, tx *sql.Tx, event string, c command, actor registration.Actor) (any, error) {
			ban := registration.Ban{EventID: event, UserID: c.UserID, Reason: c.Reason}
			if c.ExpiresAt != nil {
				ban.ExpiresAt = c.ExpiresAt.UnixMilli()
			}
			ban, err := s.service.Ban(ctx, tx, ban, actor)
			return newBan(ban), err
		},
		"unban": func(ctx context.Context, tx *sql.Tx, event string, c command, actor registration.Actor) (any, error) {
			return struct {
				EventID string `json:"event_id"`
				UserID  string `json:"user_id"`
			}{event, c.UserID}, s.service.Unban(ctx, tx, event, c.UserID, actor)
		},
	}
}

// change runs an action once for each idempotency key.
func (s *Server) change(name string, do action) handler {
	return func(w http.ResponseWriter, r *http.Request, actor registration.Actor) error {
		key, err := idempotencyKey(r)
		if err != nil {
			return err
		}
		c, canonical, err := readCommand(w, r, name)
		if err != nil {
			return err
		}
		event := r.PathValue("id")
		hash := sha256.Sum256([]byte(r.Method + "\n" + r.URL.Path + "\n" + canonical))
		response, replayed, err := s.keys.Do(r.Context(), idempotency.Key{User: actor.UserID, Route: name, Request: key, Hash: hex.EncodeToString(hash[:])},
			func(ctx context.Context, tx *sql.Tx) (idempotency.Response, error) {
				return respond(do(ctx, tx, event, c, actor))
			})
		if err != nil {
			return err
		}
		s.decided(r.Context(), name, event, response, replayed)
		for name, value := range response.Headers {
			w.Header().Set(name, value)
		}
		if replayed {
			w.Header().Set("Idempotency-Replayed", "true")
		}
		w.WriteHeader(response.Status)
		_, err = w.Write(response.Body)
		return ignoreGone(err)
	}
}

// decided counts a change, and has the cache know of it.
func (s *Server) decided(ctx context.Context, action, event string, response idempotency.Response, replayed bool) {
	if replayed {
		s.config.Metrics.Replay(action)
		return
	}
	outcome := "done"
	if response.Status != http.StatusOK {
		var p problem
		if err := json.Unmarshal(response.Body, &p); err == nil {
			outcome = p.Code
		}
	}
	s.config.Metrics.Change(action, outcome)
	if s.config.Cache != nil && outcome == "done" {
		if _, err := s.readEvent(ctx, event); err != nil {
			s.logger.WarnContext(ctx, "the cache was not told of a change", "error", err)
		}
	}
}

// respond makes the response that is stored: refusals of the domain too.
func respond(data any, err error) (idempotency.Response, error) {
	if err == nil {
		body, err := dataBody(data)
		return idempotency.Response{Status: http.StatusOK, Headers: map[string]string{"Content-Type": "application/json"}, Body: body}, err
	}
	p, ok := refusal(err)
	if !ok {
		return idempotency.Response{}, err
	}
	return idempotency.Response{Status: p.Status, Headers: map[string]string{"Content-Type": "application/problem+json"}, Body: p.body()}, nil
}

// idempotencyKey reads the key as a quoted string of RFC 8941, or bare.
func idempotencyKey(r *http.Request) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", newProblem(http.StatusBadRequest, "idempotency_key.required", "send a header Idempotency-Key, new for each change")
	}
	key := strings.TrimSpace(values[0])
	if unquoted, found := strings.CutPrefix(key, `"`); found {
		unquoted, found = strings.CutSuffix(unquoted, `"`)
		if !found {
			return "", invalid("the quotes of Idempotency-Key do not match")
		}
		key = unquoted
	}
	if len(values) > 1 || key == "" || len(key) > 255 {
		return "", invalid("there is one Idempotency-Key, of 1 to 255 characters")
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return "", invalid("Idempotency-Key is of visible ASCII characters")
		}
	}
	return key, nil
}

// readCommand reads the body, and returns it in one form for all that mean the same.
func readCommand(w http.ResponseWriter, r *http.Request, name string) (c command, canonical string, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if errors.As(err, new(*http.MaxBytesError)) {
		return c, "", newProblem(http.StatusRequestEntityTooLarge, "request.too_large", "the body has more than 16 KiB")
	}
	if err != nil {
		return c, "", invalid("the body could not be read")
	}
	moderation := name == "kick" || name == "ban" || name == "unban"
	if len(bytes.TrimSpace(body)) == 0 && !moderation {
		return c, "{}", nil
	}
	if !utf8.Valid(body) {
		return c, "", invalid("the body is not UTF-8")
	}
	if moderation {
		err = decodeStrictly(body, &c)
	} else {
		err = decodeStrictly(body, &struct{}{})
	}
	if err != nil {
		return c, "", invalid("the body is not what openapi.json says: " + err.Error())
	}
	if err := c.validate(name); err != nil {
		return c, "", err
	}
	text, err := json.Marshal(c)
	return c, string(text), err
}

func decodeStrictly(body []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}

func (c command) validate(name string) error {
	switch {
	case (name == "kick" || name == "ban" || name == "unban") && !validID(c.UserID):
		return invalid("user_id has 1 to 64 letters, digits, dots, dashes or underscores")
	case utf8.RuneCountInString(c.Reason) > 120 || strings.ContainsRune(c.Reason, 0):
		return invalid("reason has at most 120 characters, and no NUL")
	case c.ExpiresAt != nil && name != "ban":
		return invalid("expires_at is for bans")
	case c.ExpiresAt != nil && (c.ExpiresAt.Year() < 2000 || c.ExpiresAt.Year() > 9999):
		return invalid("expires_at is not in the years 2000 to 9999")
	}
	return nil
}
