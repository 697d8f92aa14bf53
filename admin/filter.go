package admin

import (
	"fmt"
	"slices"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// A Filter selects messages. All that is set must match; the zero Filter matches everything.
type Filter struct {
	// Topic, UUID, CorrelationID and StreamKey are those of the message.
	Topic, UUID, CorrelationID, StreamKey string

	// Error is a part of the last error. Upper and lower case differ.
	Error string

	// Since and Until are the first and the last moment at which a dead letter failed, or, in Admin.Messages, at which a
	// message was published. Both are by the database's clock.
	Since, Until time.Time

	// States restricts Admin.Messages to messages in one of these states. Dead letters have only one.
	States []outbox.Status
}

// maxErrorText is in characters; SQL Server reads no more than 4,000 units out of JSON.
const maxErrorText = 1000

func (f *Filter) isZero() bool {
	return f.Topic == "" && f.UUID == "" && f.CorrelationID == "" && f.StreamKey == "" && f.Error == "" &&
		f.Since.IsZero() && f.Until.IsZero() && f.States == nil
}

// texts says whether the Filter asks for more than the index of dead letters knows.
func (f *Filter) texts() bool {
	return f.Topic != "" || f.UUID != "" || f.CorrelationID != "" || f.StreamKey != "" || f.Error != ""
}

func (f *Filter) validate() error {
	for _, key := range []struct{ name, text string }{
		{"Topic", f.Topic}, {"UUID", f.UUID}, {"CorrelationID", f.CorrelationID}, {"StreamKey", f.StreamKey},
	} {
		if err := field.Key("Filter."+key.name, key.text); err != nil {
			return err
		}
	}
	if err := field.Problem("Filter.Error", limits.AnyLength(f.Error)); err != nil {
		return err
	}
	if len([]rune(f.Error)) > maxErrorText {
		return field.Bad("Filter.Error", "is longer than %d characters; a part of the error is enough", maxErrorText)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && f.Until.Before(f.Since) {
		return field.Bad("Filter.Until", "is before Filter.Since")
	}
	for _, s := range f.States {
		if s < outbox.Ready || s > outbox.Logged {
			return field.Bad("Filter.States", "has the unknown state %d", int(s))
		}
	}
	return nil
}

// A Mark is the end of a page of a list: the next page begins there. Its text form fits links and command lines.
type Mark struct{ mark, seq, until int64 }

// IsZero says whether the Mark is the beginning of a list.
func (m Mark) IsZero() bool { return m == Mark{} }

// String returns the text form, which is empty for the beginning of a list.
func (m Mark) String() string {
	if m.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d", m.mark, m.seq, m.until)
}

// ParseMark reads the text form of a Mark.
func ParseMark(text string) (m Mark, err error) {
	if text == "" {
		return Mark{}, nil
	}
	if _, err := fmt.Sscanf(text, "%d-%d-%d", &m.mark, &m.seq, &m.until); err != nil || m.String() != text {
		return Mark{}, field.Bad("Mark", "%q is not the end of a page", text)
	}
	return m, nil
}

// walkArg is the argument of outbox_dead_scan and outbox_list.
type walkArg struct {
	Topic       string          `json:"topic,omitempty"`
	TopicKey    *int64          `json:"topic_key,omitempty"`
	UUID        string          `json:"uuid,omitempty"`
	Correlation string          `json:"correlation_id,omitempty"`
	StreamKey   string          `json:"stream_key,omitempty"`
	Error       string          `json:"error,omitempty"`
	States      []outbox.Status `json:"states,omitempty"`
	FromUS      *int64          `json:"from_us,omitempty"`
	ToUS        *int64          `json:"to_us,omitempty"`
	Newest      bool            `json:"newest"`
	Scan        int             `json:"scan"`
	Cut         int             `json:"cut"`
	Mark        *int64          `json:"mark,omitempty"`
	MarkSeq     *int64          `json:"mark_seq,omitempty"`
	Until       *int64          `json:"until,omitempty"`
}

func (f *Filter) arg() *walkArg {
	arg := &walkArg{Topic: f.Topic, UUID: f.UUID, Correlation: f.CorrelationID, StreamKey: f.StreamKey, Error: f.Error,
		States: slices.Clone(f.States), FromUS: micros(f.Since), ToUS: micros(f.Until), Cut: errorCut}
	if f.Topic != "" {
		key := base.TopicKey(f.Topic)
		arg.TopicKey = &key
	}
	return arg
}

func (a *walkArg) continueAt(m Mark) {
	if !m.IsZero() {
		a.Mark, a.MarkSeq, a.Until = &m.mark, &m.seq, &m.until
	}
}

// before says whether a walk from the newest to the oldest has passed what may match.
func (a *walkArg) before(end Mark) bool { return a.FromUS != nil && end.mark < *a.FromUS }

func micros(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	us := t.UnixMicro()
	return &us
}
