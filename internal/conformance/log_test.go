package conformance

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

func (f *fixture) logged(book *logBook) *outbox.Outbox {
	f.t.Helper()
	o, err := outbox.New(f.db.DB, f.config, book)
	f.NoError(err)
	return o
}

func TestOBX096_EnqueueIsLoggedAtInfo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		_, err := f.logged(book).Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "orders", CorrelationID: "cause"}, outbox.Message{Topic: "orders"})
		f.NoError(err)
		lines := book.lines()
		f.Len(lines, 1, "one line a call")
		f.Equal("INFO", lines[0].level)
		f.Equal("orders", lines[0].fields["topic"])
		f.Equal("cause", lines[0].fields["correlation_id"])
		f.Equal(2, lines[0].fields["count"])

		p, err := outbox.NewPublisher(f.db.DB, outbox.PublisherConfig{Dialect: f.config.Dialect, Schema: f.config.Schema}, book)
		f.NoError(err)
		msg := message.NewMessage("u", nil)
		msg.Metadata.Set("correlation_id", "another")
		f.NoError(p.Publish("bills", msg))
		lines = book.lines()
		f.Len(lines, 2)
		f.Equal("bills", lines[1].fields["topic"])
		f.Equal("another", lines[1].fields["correlation_id"])
	})
}

func TestOBX097_ClaimsAreLoggedAtDebug(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		o := f.logged(book)
		f.enqueueN("orders", 7)
		for range 2 { // an empty one is not worth a line
			_, err := o.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders")})
			f.NoError(err)
		}
		lines := book.lines()
		f.Len(lines, 1)
		f.Equal("DEBUG", lines[0].level)
		f.Equal(7, lines[0].fields["count"])
	})
}

func TestOBX098_HandlerCallsAreLoggedAtAChosenLevel(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for level, want := range map[slog.Level]string{slog.LevelInfo: "INFO", slog.LevelDebug: "DEBUG", watermill.LevelTrace: "TRACE", outbox.LogOff: ""} {
			book := newLogBook()
			topic := "topic" + want
			s := f.subscriberOn(f.db.DB, book, func(c *outbox.SubscriberConfig) { c.HandlerLog = level })
			id := f.enqueueN(topic, 1)[0]
			f.receive(f.subscribe(s, topic)).Ack()
			f.NoError(s.Close())
			var found []logLine
			for _, line := range book.lines() {
				if line.fields["message_id"] == id.String() {
					found = append(found, line)
				}
			}
			if want == "" {
				f.Empty(found)
				continue
			}
			f.Len(found, 1)
			f.Equal(want, found[0].level)
			f.Equal(topic, found[0].fields["topic"])
		}
	})
}

func TestOBX099_AHandlersFailureIsLoggedAtError(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		s := f.subscriberOn(f.db.DB, book, func(c *outbox.SubscriberConfig) { c.Backoff = func(int) time.Duration { return time.Hour } })
		f.route(s, nil, func(msg *message.Message) error {
			if msg.UUID == "panics" {
				panic("a bug in the handler")
			}
			return errBoom
		})
		for uuid, text := range map[string]string{"fails": errBoom.Error(), "panics": "a bug in the handler"} {
			id := f.enqueue(outbox.Message{Topic: "orders", UUID: uuid})[0]
			f.Eventually(func() bool {
				for _, line := range book.at("ERROR", "") {
					if line.fields["message_id"] == id.String() {
						return line.err != nil && strings.Contains(line.err.Error(), text)
					}
				}
				return false
			}, patience, 2*time.Millisecond)
		}
	})
}

func TestOBX100_ReapingIsLoggedAtInfo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for name, reap := range map[string]func(o *outbox.Outbox) error{
			"a reap": func(o *outbox.Outbox) error { _, err := o.ReapExpired(f.ctx()); return err },
			"a claim": func(o *outbox.Outbox) error {
				_, err := o.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders")})
				return err
			},
			"a claim of something else": func(o *outbox.Outbox) error {
				_, err := o.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("another topic")})
				return err
			},
		} {
			f.clear()
			f.enqueueN("orders", 3)
			f.Len(f.claim("orders"), 3)
			f.expireLeases()
			book := newLogBook()
			reaped := 0
			o, err := outbox.New(f.db.DB, f.config, book)
			f.NoError(err)
			config := f.config
			config.Hooks.OnReap = func(e outbox.ReapEvent) { reaped += e.Messages }
			hooked, err := outbox.New(f.db.DB, config, book)
			f.NoError(err)
			f.NoError(reap(hooked))
			f.Equal(3, reaped, name)
			lines := book.at("INFO", "")
			f.Len(lines, 1, name)
			f.Equal(3, lines[0].fields["count"], name)
			f.NoError(reap(o))
			f.Len(book.at("INFO", ""), 1, "nothing reaped is not worth a line")
		}
	})
}

// A payload appears in no line, no error and no event, whatever goes wrong.
func TestOBX119_PayloadsAreNeverLogged(t *testing.T) {
	const secret = "4111-1111-1111-1111"
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		var told []string
		config := f.config
		config.Hooks = outbox.Hooks{
			OnPublish: func(e outbox.PublishEvent) { told = append(told, fmt.Sprintf("%+v", e)) },
			OnClaim:   func(e outbox.ClaimEvent) { told = append(told, fmt.Sprintf("%+v", e)) },
			OnSettle:  func(e outbox.SettleEvent) { told = append(told, fmt.Sprintf("%+v", e)) },
		}
		o, err := outbox.New(f.db.DB, config, book)
		f.NoError(err)
		payload := []byte(secret)
		taken, err := o.Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "orders", Payload: payload, Headers: map[string]string{"h": "x"}})
		f.NoError(err)
		for _, bad := range []outbox.Message{
			{Payload: payload}, {Topic: "orders", Payload: payload, ID: taken[0]}, {Topic: "a ", Payload: payload}, {Topic: "orders", Payload: payload, Delay: -1},
		} {
			_, err := o.Enqueue(f.ctx(), f.db.DB, bad)
			f.Error(err)
			told = append(told, err.Error())
		}
		claimed, err := o.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders")})
		f.NoError(err)
		_, err = o.Settle(f.ctx(), f.db.DB, settled(outbox.Release, claimed...))
		f.NoError(err)

		s := f.subscriberOn(f.db.DB, book)
		messages := f.subscribe(s, "orders")
		msg := f.receive(messages)
		f.delivery(msg).SetErr(errors.New("failed"))
		msg.Nack()
		f.receive(messages).Ack()
		f.NoError(s.Close())

		f.NotEmpty(book.lines())
		for _, line := range book.lines() {
			told = append(told, line.String())
		}
		for _, text := range told {
			f.NotContains(text, secret)
			f.NotContains(text, fmt.Sprintf("%d", payload))
			f.NotContains(strings.ToLower(text), fmt.Sprintf("%x", payload))
		}
	})
}
