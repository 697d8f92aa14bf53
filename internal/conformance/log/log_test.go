package log_test

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
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

func (f *fixture) logged(book *suite.LogBook) *outbox.Outbox {
	f.T.Helper()
	o, err := outbox.New(f.DB.DB, f.Config, book)
	f.NoError(err)
	return o
}

func TestOBX096_EnqueueIsLoggedAtInfo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		_, err := f.logged(book).Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders", CorrelationID: "cause"}, outbox.Message{Topic: "orders"})
		f.NoError(err)
		lines := book.Lines()
		f.Len(lines, 1, "one line a call")
		f.Equal("INFO", lines[0].Level)
		f.Equal("orders", lines[0].Fields["topic"])
		f.Equal("cause", lines[0].Fields["correlation_id"])
		f.Equal(2, lines[0].Fields["count"])

		p, err := outbox.NewPublisher(f.DB.DB, outbox.PublisherConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, book)
		f.NoError(err)
		msg := message.NewMessage("u", nil)
		msg.Metadata.Set("correlation_id", "another")
		f.NoError(p.Publish("bills", msg))
		lines = book.Lines()
		f.Len(lines, 2)
		f.Equal("bills", lines[1].Fields["topic"])
		f.Equal("another", lines[1].Fields["correlation_id"])
	})
}

func TestOBX097_ClaimsAreLoggedAtDebug(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		o := f.logged(book)
		f.EnqueueN("orders", 7)
		for range 2 { // an empty one is not worth a line
			_, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
			f.NoError(err)
		}
		lines := book.Lines()
		f.Len(lines, 1)
		f.Equal("DEBUG", lines[0].Level)
		f.Equal(7, lines[0].Fields["count"])
	})
}

func TestOBX098_HandlerCallsAreLoggedAtAChosenLevel(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for level, want := range map[slog.Level]string{slog.LevelInfo: "INFO", slog.LevelDebug: "DEBUG", watermill.LevelTrace: "TRACE", outbox.LogOff: ""} {
			book := suite.NewLogBook()
			topic := "topic" + want
			s := f.SubscriberOn(f.DB.DB, book, func(c *outbox.SubscriberConfig) { c.HandlerLog = level })
			id := f.EnqueueN(topic, 1)[0]
			f.Receive(f.Subscribe(s, topic)).Ack()
			f.NoError(s.Close())
			var found []suite.LogLine
			for _, line := range book.Lines() {
				if line.Fields["message_id"] == id.String() {
					found = append(found, line)
				}
			}
			if want == "" {
				f.Empty(found)
				continue
			}
			f.Len(found, 1)
			f.Equal(want, found[0].Level)
			f.Equal(topic, found[0].Fields["topic"])
		}
	})
}

func TestOBX099_AHandlersFailureIsLoggedAtError(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		s := f.SubscriberOn(f.DB.DB, book, func(c *outbox.SubscriberConfig) { c.Backoff = func(int) time.Duration { return time.Hour } })
		f.Route(s, nil, func(msg *message.Message) error {
			if msg.UUID == "panics" {
				panic("a bug in the handler")
			}
			return suite.ErrBoom
		})
		for uuid, text := range map[string]string{"fails": suite.ErrBoom.Error(), "panics": "a bug in the handler"} {
			id := f.Enqueue(outbox.Message{Topic: "orders", UUID: uuid})[0]
			f.Eventually(func() bool {
				for _, line := range book.At("ERROR", "") {
					if line.Fields["message_id"] == id.String() {
						return line.Err != nil && strings.Contains(line.Err.Error(), text)
					}
				}
				return false
			}, suite.Patience, 2*time.Millisecond)
		}
	})
}

func TestOBX100_ReapingIsLoggedAtInfo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for name, reap := range map[string]func(o *outbox.Outbox) error{
			"a reap": func(o *outbox.Outbox) error { _, err := o.ReapExpired(f.Context()); return err },
			"a claim": func(o *outbox.Outbox) error {
				_, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
				return err
			},
			"a claim of something else": func(o *outbox.Outbox) error {
				_, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("another topic")})
				return err
			},
		} {
			f.Clear()
			f.EnqueueN("orders", 3)
			f.Len(f.Claim("orders"), 3)
			f.ExpireLeases()
			book := suite.NewLogBook()
			reaped := 0
			o, err := outbox.New(f.DB.DB, f.Config, book)
			f.NoError(err)
			config := f.Config
			config.Hooks.OnReap = func(e outbox.ReapEvent) { reaped += e.Messages }
			hooked, err := outbox.New(f.DB.DB, config, book)
			f.NoError(err)
			f.NoError(reap(hooked))
			f.Equal(3, reaped, name)
			lines := book.At("INFO", "")
			f.Len(lines, 1, name)
			f.Equal(3, lines[0].Fields["count"], name)
			f.NoError(reap(o))
			f.Len(book.At("INFO", ""), 1, "nothing reaped is not worth a line")
		}
	})
}

// A payload appears in no line, no error and no event, whatever goes wrong.
func TestOBX119_PayloadsAreNeverLogged(t *testing.T) {
	const secret = "4111-1111-1111-1111"
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		var told []string
		config := f.Config
		config.Hooks = outbox.Hooks{
			OnPublish: func(e outbox.PublishEvent) { told = append(told, fmt.Sprintf("%+v", e)) },
			OnClaim:   func(e outbox.ClaimEvent) { told = append(told, fmt.Sprintf("%+v", e)) },
			OnSettle:  func(e outbox.SettleEvent) { told = append(told, fmt.Sprintf("%+v", e)) },
		}
		o, err := outbox.New(f.DB.DB, config, book)
		f.NoError(err)
		payload := []byte(secret)
		taken, err := o.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders", Payload: payload, Headers: map[string]string{"h": "x"}})
		f.NoError(err)
		for _, bad := range []outbox.Message{
			{Payload: payload}, {Topic: "orders", Payload: payload, ID: taken[0]}, {Topic: "a ", Payload: payload}, {Topic: "orders", Payload: payload, Delay: -1},
		} {
			_, err := o.Enqueue(f.Context(), f.DB.DB, bad)
			f.Error(err)
			told = append(told, err.Error())
		}
		claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.NoError(err)
		_, err = o.Settle(f.Context(), f.DB.DB, suite.Settled(outbox.Release, claimed...))
		f.NoError(err)

		s := f.SubscriberOn(f.DB.DB, book)
		messages := f.Subscribe(s, "orders")
		msg := f.Receive(messages)
		f.Delivery(msg).SetErr(errors.New("failed"))
		msg.Nack()
		f.Receive(messages).Ack()
		f.NoError(s.Close())

		f.NotEmpty(book.Lines())
		for _, line := range book.Lines() {
			told = append(told, line.String())
		}
		for _, text := range told {
			f.NotContains(text, secret)
			f.NotContains(text, fmt.Sprintf("%d", payload))
			f.NotContains(strings.ToLower(text), fmt.Sprintf("%x", payload))
		}
	})
}
