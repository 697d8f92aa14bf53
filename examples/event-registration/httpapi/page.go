package httpapi

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

//go:embed page.html page.css page.js
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page.html"))

const tokenCookie = "token"

// pageEvents is the most events on the page.
const pageEvents = 50

type pageEvent struct {
	registration.Event
	Mine      registration.Registration
	Place     int
	Moderates bool
}

type pageData struct {
	User, Message, Key string
	Events             []pageEvent
	Event              string // whose people are shown
	People             map[string][]registration.Registration
}

// pages are for people: the same calls, with the token in a cookie. Forms of other sites are refused.
func (s *Server) pages() {
	own := http.NewCrossOriginProtection()
	own.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		newProblem(http.StatusForbidden, "page.cross_origin", "the form is from another site").write(w)
	}))
	s.mux.HandleFunc("GET /{$}", s.page)
	s.mux.HandleFunc("GET /events/{id}", s.page)
	for _, name := range []string{"page.css", "page.js"} {
		s.mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, pageFiles, name) })
	}
	s.mux.Handle("POST /sign-in", own.Handler(http.HandlerFunc(s.signIn)))
	s.mux.Handle("POST /sign-out", own.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setToken(w, r, "", -1)
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})))
	for action := range s.actions() {
		s.mux.Handle("POST /events/{id}/"+action, own.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.submit(w, r, action) })))
	}
}

func setToken(w http.ResponseWriter, r *http.Request, token string, age int) {
	http.SetCookie(w, &http.Cookie{Name: tokenCookie, Value: token, Path: "/", MaxAge: age, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
}

// withToken moves the token from the cookie to where the API expects it.
func withToken(r *http.Request) {
	if cookie, err := r.Cookie(tokenCookie); err == nil {
		r.Header.Set("Authorization", "Bearer "+cookie.Value)
	}
}

func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	token := strings.TrimSpace(r.PostFormValue("token"))
	r.Header.Set("Authorization", "Bearer "+token)
	if _, err := s.authenticate(r); err != nil {
		http.Redirect(w, r, "/?message="+url.QueryEscape("The token is not valid."), http.StatusSeeOther)
		return
	}
	setToken(w, r, token, 0)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// submit makes a call of the API of a form, and shows what it refused.
func (s *Server) submit(w http.ResponseWriter, r *http.Request, action string) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	body := []byte("{}")
	if user := r.PostFormValue("user_id"); user != "" {
		var err error
		if body, err = json.Marshal(map[string]string{"user_id": user}); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "/join/v1/events/"+url.PathEscape(r.PathValue("id"))+"/"+action, bytes.NewReader(body))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	call.Header.Set("Idempotency-Key", r.PostFormValue("key"))
	if cookie, err := r.Cookie(tokenCookie); err == nil {
		call.Header.Set("Authorization", "Bearer "+cookie.Value)
	}
	answer := httptest.NewRecorder()
	s.mux.ServeHTTP(answer, call)
	to := "/"
	if action == "kick" || action == "ban" || action == "unban" {
		to = "/events/" + url.PathEscape(r.PathValue("id"))
	}
	if answer.Code != http.StatusOK {
		var p problem
		if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil {
			s.fail(w, r, err)
			return
		}
		to += "?message=" + url.QueryEscape(p.Title+": "+p.Detail)
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	withToken(r)
	actor, err := s.authenticate(r)
	if err != nil {
		actor = registration.Actor{}
	}
	data, err := s.pageData(r, actor)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, data); err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	w.Header().Set("Referrer-Policy", "same-origin")
	_, _ = out.WriteTo(w) // the client may have gone
}

func (s *Server) pageData(r *http.Request, actor registration.Actor) (data pageData, err error) {
	data = pageData{User: actor.UserID, Message: r.URL.Query().Get("message"), Key: uuid.NewString(), Event: r.PathValue("id")}
	if data.Event != "" {
		return s.pageOfEvent(r, data, actor)
	}
	events, err := s.service.Events(r.Context(), "", pageEvents)
	if err != nil {
		return data, err
	}
	for _, e := range events {
		one, err := s.pageEvent(r, e, actor)
		if err != nil {
			return data, err
		}
		data.Events = append(data.Events, one)
	}
	return data, nil
}

// pageOfEvent shows who is there, to whoever moderates it.
func (s *Server) pageOfEvent(r *http.Request, data pageData, actor registration.Actor) (pageData, error) {
	e, err := s.event(r.Context(), data.Event, actor)
	if err != nil {
		return data, err
	}
	one, err := s.pageEvent(r, e, actor)
	if err != nil {
		return data, err
	}
	data.Events, data.People = []pageEvent{one}, map[string][]registration.Registration{}
	for name, status := range map[string]registration.Status{"Participants": registration.Active, "Waitlist": registration.Waitlisted} {
		if data.People[name], err = s.service.List(r.Context(), data.Event, status, 0, 100, actor); err != nil {
			return data, err
		}
	}
	return data, nil
}

func (s *Server) pageEvent(r *http.Request, e registration.Event, actor registration.Actor) (one pageEvent, err error) {
	one = pageEvent{Event: e, Moderates: actor.Moderates(&e)}
	if actor.UserID == "" {
		return one, nil
	}
	one.Mine, one.Place, err = s.service.My(r.Context(), e.ID, actor.UserID)
	if errors.Is(err, registration.ErrNotRegistered) {
		err = nil
	}
	return one, err
}
