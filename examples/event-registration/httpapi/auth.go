package httpapi

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

// AuthConfig says whose tokens count.
type AuthConfig struct {
	Secret   []byte // of HS256, at least 32 bytes
	Issuer   string
	Audience string
}

type claims struct {
	jwt.RegisteredClaims
	Role string `json:"role,omitempty"` // admin, or nothing
}

// Token signs a token, as the identity provider would.
func (a AuthConfig) Token(actor registration.Actor, lifetime time.Duration) (string, error) {
	now := time.Now()
	c := claims{RegisteredClaims: jwt.RegisteredClaims{
		Subject: actor.UserID, Issuer: a.Issuer, Audience: jwt.ClaimStrings{a.Audience},
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(lifetime)),
	}}
	if actor.Admin {
		c.Role = "admin"
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(a.Secret)
}

func (a AuthConfig) validate() error {
	if len(a.Secret) < 32 || a.Issuer == "" || a.Audience == "" {
		return errors.New("httpapi: AuthConfig needs a secret of at least 32 bytes, an issuer and an audience")
	}
	return nil
}

func (a AuthConfig) parser() *jwt.Parser {
	return jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithIssuer(a.Issuer), jwt.WithAudience(a.Audience), jwt.WithLeeway(30*time.Second), jwt.WithIssuedAt())
}

// PageActor is who asks for a page: the token is in the cookie of those who have signed in.
func (a AuthConfig) PageActor(r *http.Request) (registration.Actor, error) {
	cookie, err := r.Cookie(tokenCookie)
	if err != nil {
		return registration.Actor{}, unauthorized("nobody is signed in")
	}
	return a.actor(cookie.Value)
}

// authenticate reads who asks from a bearer token.
func (s *Server) authenticate(r *http.Request) (registration.Actor, error) {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return registration.Actor{}, unauthorized("a bearer token is required")
	}
	return s.config.Auth.actor(token)
}

func (a AuthConfig) actor(token string) (registration.Actor, error) {
	var c claims
	_, err := a.parser().ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return a.Secret, nil })
	if err != nil || !validID(c.Subject) {
		return registration.Actor{}, unauthorized("the token is not valid")
	}
	return registration.Actor{UserID: c.Subject, Admin: c.Role == "admin"}, nil
}

func unauthorized(detail string) problem {
	return newProblem(http.StatusUnauthorized, "auth.unauthorized", detail)
}

// validID accepts what is stored as an id of a user or an event.
func validID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return strings.IndexFunc(id, func(c rune) bool { return !strings.ContainsRune(allowed, c) }) < 0
}
