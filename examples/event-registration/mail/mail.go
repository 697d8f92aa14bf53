// Package mail is the email-service: it writes a file for each mail, named after the message, so that there is one of each
// however often it is handled.
package mail

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

// A Service writes mails to a folder.
type Service struct{ Folder string }

var subjects = map[string]string{
	registration.JoinConfirmed:     "You have a seat",
	registration.JoinWaitlisted:    "You are on the waitlist",
	registration.JoinPromoted:      "You have a seat now",
	registration.JoinCanceled:      "You have canceled",
	registration.JoinExpired:       "Your seat went to somebody else",
	registration.JoinKicked:        "You were removed",
	registration.JoinBanned:        "You were banned",
	registration.JoinUnbanned:      "You may join again",
	registration.JoinEventCanceled: "The event is canceled",
}

// Handle writes the mail of a message, if it is for a user.
func (s Service) Handle(_ context.Context, _ *sql.Tx, msg *message.Message, m registration.Message) error {
	subject, known := subjects[m.Type]
	if !known {
		return nil
	}
	text := fmt.Sprintf("To: %s\nSubject: %s: %s\n\n%s\n", m.UserID, subject, m.Title, m.Reason)
	path := filepath.Join(s.Folder, filepath.Base(msg.UUID)+".txt")
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the mail: %w", err)
	}
	return os.Rename(path+".new", path)
}
