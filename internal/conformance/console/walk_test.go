package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/testbrowser"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
)

const calm = `document.body.dataset.live != "busy"`

// Somebody finds 12 errors among many by their text, and requeues all that match.
func TestABrowserFindsErrorsByTextAndActsOnAllThatMatch(t *testing.T) {
	forEach(t, func(f *fixture) {
		b := testbrowser.Start(f.T)
		n := sized(2400, 100_000)
		f.end("orders", n, rare(n))
		f.EqualValues(200, b.Open(f.store+"dead"))
		b.Fill(`input[name=error]`, "no such customer")
		f.EqualValues(200, b.Click(".filter button"))
		b.Until(calm)
		f.Equal(float64(12), b.Eval(`document.querySelectorAll("#found tbody tr").length`))
		b.Reads("#groups h2", fmt.Sprintf("12 of %s dead letters", grouped(n)))
		f.EqualValues(200, b.Click(`#groups .links a`))
		b.Until(`document.querySelector("button.main")`)
		f.Equal("Requeue 12 messages", b.Text("button.main"))
		f.Equal(0, f.Count(outbox.Ready), "it has only counted")
		f.EqualValues(200, b.Click("button.main"))
		b.Until(calm)
		b.Reads("#progress .notice", "12 messages were requeued.")
		f.Equal(12, f.Count(outbox.Ready))
		f.Equal(n-12, f.Count(outbox.Failed))

		b.Open(f.store + "dead?error=no+such+customer")
		b.Until(calm)
		b.Reads("#found", "Nothing matches.")
		b.Open(f.store + "dead") // the count falls
		b.Until(calm + fmt.Sprintf(` && document.querySelector("#groups h2").textContent.includes(%q)`, grouped(n-12)+" of"))
		b.Open(f.store + "audit")
		b.Reads("tbody", "ann")
		b.Reads("tbody", "requeue")
		b.Quiet()
	})
}

func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// Whoever chooses nothing discards nothing.
func TestABrowserChoosesNothing(t *testing.T) {
	forEach(t, func(f *fixture) {
		b := testbrowser.Start(f.T)
		f.end("orders", 3, rare(12))
		b.Open(f.store + "dead?topic=orders")
		b.Until(calm)
		f.EqualValues(400, b.Click(`#found button[value=discard]`))
		b.Reads("main", "choose at least one message")
		b.Open(f.store + "dead?topic=orders")
		b.Until(calm)
		b.Eval(`document.querySelector("#found input[name=id]").click()`)
		f.EqualValues(200, b.Click(`#found button[value=discard]`))
		b.Until(`document.querySelector("button.main")`)
		f.Equal("Discard 1 message", b.Text("button.main"))
		b.Problems() // the browser tells of the refusal
	})
}

// Another operator is faster, or leaves in the middle.
func TestTwoOperatorsAtOnce(t *testing.T) {
	forEach(t, func(f *fixture) {
		b := testbrowser.Start(f.T)
		f.end("orders", 1200, rare(1200))
		b.Open(f.store + "act?do=requeue&error=no+such+customer")
		b.Until(`document.querySelector("button.main")`)
		result, err := f.admin.Requeue(f.T.Context(), admin.ActParams{Filter: admin.Filter{Error: "no such customer"}, By: "bob"})
		f.NoError(err)
		f.Equal(12, result.Done)
		b.Click("button.main")
		b.Until(calm)
		b.Reads("#progress .notice", "0 messages were requeued. 12 were left out: somebody else was faster")

		b.Open(f.store + "act?do=requeue&topic=orders")
		b.Until(`document.querySelector("button.main")`)
		b.Click("button.main")
		b.Open("about:blank")
		f.Becomes(outbox.Ready, 1200)
		b.Quiet()
	})
}

// A page of another site sends a form to the console, from the browser of somebody who may do everything.
func TestABrowserIsNotUsedByAnotherSite(t *testing.T) {
	forEach(t, func(f *fixture) {
		b := testbrowser.Start(f.T)
		f.end("orders", 3, rare(12))
		evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `<!doctype html><link rel=icon href="data:,"><form method=post action="%sact"><input name=do value=discard><input name=counted value=3>`+
				`<input name=until value=%s><button>Win</button></form><iframe src="%s"></iframe>`, f.store, time.Now().Add(time.Hour).UTC().Format(time.RFC3339), f.store)
		}))
		defer evil.Close()
		b.Open(evil.URL)
		f.Contains(fmt.Sprint(b.Problems()), "frame-ancestors", "it is not framed")
		f.EqualValues(403, b.Click("button"))
		f.Equal(3, f.Count(outbox.Failed))
		b.Problems() // the browser tells of the answer
	})
}

// Every page opens without a complaint of the browser.
func TestLong_ABrowserWalksThroughAllPages(t *testing.T) {
	forEach(t, func(f *fixture) {
		b := testbrowser.Start(f.T)
		ctx := f.T.Context()
		f.end("orders", 24, rare(24))
		joins, err := join.NewCoordinator(f.DB.DB, join.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
		f.NoError(err)
		whole, err := joins.Start(ctx, nil, join.StartParams{GroupingKey: "night", ExpectedSteps: 5})
		f.NoError(err)
		_, err = joins.Enqueue(ctx, nil, whole, outbox.Message{Topic: "steps"}, outbox.Message{Topic: "steps"})
		f.NoError(err)
		part, err := joins.Start(ctx, nil, join.StartParams{ExpectedSteps: 1})
		f.NoError(err)
		f.NoError(joins.AttachJoin(ctx, nil, whole, part))
		ids, err := f.Outbox.Outbox.Enqueue(ctx, f.DB.DB, outbox.Message{Topic: "binary", Payload: []byte{0, 1, 0xff}, Headers: map[string]string{"a": "b"}})
		f.NoError(err)

		for _, path := range []string{
			"", "topic?name=orders", "topic?name=nobody+knows+it", "search", "search?state=failed&topic=orders", "dead", "dead?since=1h", "streams",
			"joins", "joins?after=" + whole.String(), "joins?before=" + part.String(), "joins?key=night", "joins?key=" + whole.String(), "log", "log/dead?group=g", "inbox", "inbox?source=a&message=b&handler=c", "workers", "schema", "audit",
			"act?do=discard&topic=orders", "act?do=cancel&topic=steps", "act?do=delay&topic=steps", "../../activity",
			"message/" + ids[0].String(), "message/" + ids[0].String() + "?contents=text", "message/" + ids[0].String() + "?contents=hex",
		} {
			f.EqualValues(200, b.Open(f.store+path), path)
			b.Until(calm)
			f.NotEmpty(b.Text("h1"), path)
			b.Quiet()
		}
		b.Reads("pre.payload", "00 01 ff")
		b.Open(f.store + "joins")
		b.Reads("#pending", "night")
		b.Reads("#recent", part.String())
		b.Open(f.store + "joins?key=" + whole.String())
		b.Reads(".tree", "2 steps are missing")
		b.Reads("#main", part.String())
		b.Open(f.store + "schema")
		b.Until(calm)
		b.Reads("#check", "Everything is as this version of the library needs it.")
		b.Quiet()
	})
}

// What can be done one by one: pause and resume, delay, cancel, edit.
func TestABrowserDoesEachAct(t *testing.T) {
	forEach(t, func(f *fixture) {
		b := testbrowser.Start(f.T)
		b.Open(f.store + "topic?name=bills")
		b.Fill(`input[name=reason]`, "the printer is out")
		b.Click(`button[value=pause]`)
		b.Reads(".notice", "the printer is out")
		b.Reads(".notice", "by ann")
		b.Open(f.store)
		b.Reads("#topics", "paused")
		b.Open(f.store + "topic?name=bills")
		b.Click(`button[value=resume]`)
		paused, err := f.admin.Paused(f.T.Context())
		f.NoError(err)
		f.Empty(paused)

		f.Enqueue("bills", 0, 3)
		for _, do := range []string{"delay", "cancel"} {
			b.Open(f.store + "search?topic=bills")
			b.Until(calm)
			b.Open(f.store + "act?do=" + do + "&topic=bills")
			b.Until(`document.querySelector("button.main")`)
			b.Click("button.main")
			b.Until(calm)
			b.Reads("#progress .notice", "3 messages were "+map[string]string{"delay": "delayed", "cancel": "cancelled"}[do])
		}
		f.Equal(3, f.Count(outbox.Failed))

		failed, err := f.admin.Failed(f.T.Context(), admin.ListParams{Limit: 1})
		f.NoError(err)
		b.Open(f.store + "edit/" + failed.Messages[0].ID.String())
		b.Fill("textarea", "one line\nanother <b>line</b>")
		b.Click("button.main")
		id, err := url.PathUnescape(fmt.Sprint(b.Eval(`location.pathname.split("/").pop()`)))
		f.NoError(err)
		var copied outbox.MessageID
		f.NoError(copied.UnmarshalText([]byte(id)))
		records, err := f.Get(f.T.Context(), copied)
		f.NoError(err)
		f.Equal("one line\nanother <b>line</b>", string(records[0].Payload))
		f.Equal(outbox.Ready, records[0].Status)
		f.EqualValues(409, b.Open(f.store+"edit/"+failed.Messages[0].ID.String()), "it is done now")
		b.Problems()
	})
}

// A consumer group is moved past the message that blocks it.
func TestABrowserSkipsForAGroup(t *testing.T) {
	forEach(t, func(f *fixture) {
		f.BlockGroup("mail", "events")
		b := testbrowser.Start(f.T)
		b.Open(f.store + "log")
		b.Until(`document.querySelector("#log-groups button[value=skip]")`)
		b.ClickOn(`(() => { const sure = document.querySelector("#log-groups .sure"); sure.open = true; return sure.querySelector("button"); })()`)
		b.Until(`!document.querySelector("#log-groups button[value=skip]")`)
		b.Reads("#log-groups a.bad", "1")
		letters, err := f.GroupDeadLetters(f.T.Context(), outbox.GroupDeadLetterParams{Group: "mail"})
		f.NoError(err)
		f.Len(letters, 1)
		f.Contains(letters[0].Reason, "skipped by an operator")
		b.Quiet()
	})
}
