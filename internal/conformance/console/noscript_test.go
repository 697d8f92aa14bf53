package console_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testbrowser"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
)

// A browser that runs no scripts is told of what goes on by loading pages again: it pauses a topic, requeues all that match,
// cancels a join, and reads every page.
func TestABrowserWithoutScripts(t *testing.T) {
	forEach(t, func(f *fixture) {
		ctx := f.T.Context()
		b := testbrowser.Start(f.T)
		b.WithoutScripts()
		f.end("orders", 24, rare(24))
		joins, err := join.NewCoordinator(f.DB.DB, join.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
		f.NoError(err)
		whole, err := joins.Start(ctx, nil, join.StartParams{GroupingKey: "night", ExpectedSteps: 1})
		f.NoError(err)
		ids, err := f.Outbox.Outbox.Enqueue(ctx, f.DB.DB, outbox.Message{Topic: "bills"})
		f.NoError(err)

		rests := func() { b.Until(`!document.querySelector("meta[http-equiv=refresh]")`) } // until then the page loads itself again

		b.Open(f.store + "topic?name=bills")
		rests()
		b.Fill(`input[name=reason]`, "the printer is out")
		f.EqualValues(200, b.Click(`button[value=pause]`))
		b.Reads(".notice", "the printer is out")
		paused, err := f.admin.Paused(ctx)
		f.NoError(err)
		f.Len(paused, 1)
		for range 100 { // a busy store may not be looked at in time, and then only a reader loads the page again
			if b.Eval(`!!document.querySelector("button[value=resume]")`) == true {
				break
			}
			b.Open(f.store + "topic?name=bills")
			rests()
		}
		b.Click(`button[value=resume]`)

		b.Open(f.store + "dead")
		rests()
		b.Fill(`input[name=error]`, "no such customer")
		f.EqualValues(200, b.Click(".filter button"))
		b.Until(`document.querySelectorAll("#found tbody tr").length == 12`)
		rests()
		f.EqualValues(200, b.Click(`#groups .links a`))
		b.Reads("button.main", "Requeue 12 messages")
		rests()
		f.EqualValues(200, b.Click("button.main"))
		b.Reads("#progress .notice", "12 messages were requeued.")
		f.Equal(13, f.Count(outbox.Ready))
		f.Equal(12, f.Count(outbox.Failed))

		b.Open(f.store + "join/" + whole.String())
		rests()
		b.Eval(`document.querySelector("details.sure summary").click()`)
		f.EqualValues(200, b.Click(`button[value=cancel]`))
		known, err := joins.Get(ctx, nil, whole)
		f.NoError(err)
		f.Equal(join.Cancelled, known.Status)
		b.Open(f.store + "audit")
		for _, act := range []string{"pause", "resume", "requeue", "cancel join"} {
			b.Reads("tbody", act)
		}

		for _, path := range []string{
			"", "topic?name=orders", "search?state=failed&topic=orders", "dead", "streams", "joins?key=night", "log", "log/dead?group=g", "inbox",
			"workers", "schema", "audit", "act?do=discard&topic=orders", "../../activity", "../../", "message/" + ids[0].String(),
		} {
			f.EqualValues(200, b.Open(f.store+path), path)
			f.NotEmpty(b.Text("h1"), path)
			rests()
		}
		b.Quiet()
	})
}
