package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/console"
	"github.com/incursa/watermill-outbox/internal/testbrowser"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
)

// hostile texts would run in a page that took them for more than text.
var hostile = []string{
	`<script>window.hacked=1</script>`, `"><img src=x onerror=window.hacked=1>`, `' onmouseover='window.hacked=1`, `javascript:window.hacked=1`,
	`{{.}}</textarea></pre><svg onload=window.hacked=1>`, "tur\u202Edna\u2066", `%3Cscript%3E&lt;b&gt;&amp;`,
}

// What others have written is shown as text: topics, UUIDs, streams, correlation ids, errors, headers, payloads, names.
func TestLong_HostileTextsAreShownAsText(t *testing.T) {
	testoutbox.ForEach(t, func(_ *testing.T, o *testoutbox.Outbox) {
		b := testbrowser.Start(o.T)
		f := serve(o, "shop", console.Config{
			Authorize: allow, AllowChanges: true, Actor: func(*http.Request) string { return hostile[0] },
			Redact: func(*http.Request, *outbox.Message) bool { return true },
		})
		ctx := o.T.Context()
		joins, err := join.NewCoordinator(o.DB.DB, join.Config{Dialect: testoutbox.Dialect(o.DB.Name), Schema: o.DB.Schema}, nil)
		o.NoError(err)
		var failed []outbox.MessageID
		for _, text := range hostile {
			ids, err := o.Outbox.Enqueue(ctx, o.DB.DB, outbox.Message{Topic: text, UUID: text, StreamKey: text, CorrelationID: text,
				Payload: []byte(text), Headers: map[string]string{text: text}})
			o.NoError(err)
			failed = append(failed, ids...)
			_, err = joins.Start(ctx, nil, join.StartParams{GroupingKey: text, ExpectedSteps: 1, Metadata: text})
			o.NoError(err)
			f.failAll(text)
		}
		look := func(path string, shown ...string) {
			o.T.Helper()
			b.Open(path)
			b.Until(calm)
			o.Nil(b.Eval(`window.hacked`), path)
			text := fmt.Sprint(b.Eval(`document.body.textContent`))
			for _, want := range shown {
				o.Contains(text, want, path)
			}
			b.Quiet()
		}
		for _, path := range []string{"", "search", "dead", "streams", "audit", "workers"} {
			look(f.store + path)
		}
		look(f.store+"dead", hostile...)
		look(f.store+"streams", hostile...)
		for i, text := range hostile {
			for _, as := range []string{"text", "hex", "json"} {
				look(f.store + "message/" + failed[i].String() + "?contents=" + as)
			}
			look(f.store+"message/"+failed[i].String()+"?contents=text", text)
			b.Open(f.store + "dead")
			b.Until(calm)
			row := fmt.Sprintf(`.find(r => r.cells[2].textContent == %q)`, text)
			b.ClickOn(`[...document.querySelectorAll("#groups tbody tr")]` + row + `.cells[1].querySelector("a")`) // it leads to the messages with this error
			b.Until(calm)
			o.Equal(float64(1), b.Eval(`document.querySelectorAll("#found tbody tr").length`), text)
			b.Open(f.store + "streams")
			b.ClickOn(`[...document.querySelectorAll("#streams tr")]` + row + `.querySelector("button[value=resume]")`)
			b.Quiet()
		}
		o.Equal(len(hostile), o.Count(outbox.Ready), "each form has named its own stream")
		look(f.store+"joins?key=%3Cscript%3Ewindow.hacked=1%3C/script%3E", hostile[0])
		look(f.url+"activity", hostile[0])
	})
}

// failAll has all that is due fail for good.
func (f *fixture) failAll(topic string) {
	f.T.Helper()
	f.Eventually(func() bool { // a stream is taken up by the next claim
		claimed, err := f.Claim(f.T.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topic}}, Limit: 10, Lease: time.Minute})
		f.NoError(err)
		var settlements []outbox.Settlement
		for _, c := range claimed {
			settlements = append(settlements, outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Fail, Err: errors.New(topic)})
		}
		_, err = f.Settle(f.T.Context(), f.DB.DB, settlements)
		f.NoError(err)
		return len(claimed) > 0
	}, testoutbox.Patience, 10*time.Millisecond)
}
