package join_test

import (
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// one is the only line of a level with a word in it.
func (f *fixture) one(book *suite.LogBook, level, word string) suite.LogLine {
	f.T.Helper()
	found := book.At(level, word)
	f.Len(found, 1, "%s %q in %v", level, word, book.Lines())
	return found[0]
}

func TestJOIN070_StartingAJoinIsLoggedAtInfo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		id := f.Start(f.JoinsLogging(book), join.StartParams{GroupingKey: "tenant 7", ExpectedSteps: 3, Metadata: "secret"})
		line := f.one(book, "INFO", "join")
		f.Equal(id.String(), line.Fields["join_id"])
		f.Equal("tenant 7", line.Fields["grouping_key"])
		f.Equal(3, line.Fields["expected_steps"])
		f.NotContains(line.String(), "secret")
		_, err := f.JoinsLogging(book).Start(f.Context(), nil, join.StartParams{})
		f.Error(err)
		f.Len(book.Lines(), 1, "what is refused has not started")
	})
}

func TestJOIN071_AttachingIsLoggedAtDebug(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		c := f.JoinsLogging(book)
		id := f.Start(c, join.StartParams{Open: true})
		ids := append(f.EnqueueN("s", 2), outbox.MessageID{1})
		f.NoError(c.Attach(f.Context(), nil, id, ids[:2]...))
		f.NoError(c.AttachByReport(f.Context(), nil, id, ids[2]))
		ids = append(ids, f.AddSteps(c, id, "s", 1)...)
		lines := book.At("DEBUG", "Attached")
		f.Len(lines, 4)
		for i, line := range lines {
			f.Equal(id.String(), line.Fields["join_id"])
			f.Equal(ids[i].String(), line.Fields["message_id"])
		}
		f.Error(c.Attach(f.Context(), nil, id, outbox.MessageID{2}))
		f.Len(book.At("DEBUG", "Attached"), 4)
	})
}

// Whatever ends a join says so, once, and tells the hook.
func TestJOIN072_TheEndOfAJoinIsLoggedAtInfo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		for name, end := range map[string]struct {
			join   join.StartParams
			want   outbox.JoinEvent
			status string
			end    func(c *join.Coordinator, o *outbox.Outbox, id join.ID, steps []outbox.MessageID) error
		}{
			"settling": {
				join.StartParams{ExpectedSteps: 2}, outbox.JoinEvent{Status: join.Failed, Expected: 2, Completed: 1, Failed: 1}, "failed",
				func(_ *join.Coordinator, o *outbox.Outbox, _ join.ID, _ []outbox.MessageID) error {
					claimed := f.Claim("s")
					_, err := o.Settle(f.Context(), f.DB.DB, append(suite.Settled(outbox.Ack, claimed[0]), suite.Settled(outbox.Fail, claimed[1])...))
					return err
				},
			},
			"reporting": {
				join.StartParams{ExpectedSteps: 2}, outbox.JoinEvent{Status: join.Completed, Expected: 2, Completed: 2}, "completed",
				func(c *join.Coordinator, _ *outbox.Outbox, id join.ID, steps []outbox.MessageID) error {
					return errors.Join(c.ReportStepCompleted(f.Context(), nil, id, steps[0]), c.ReportStepCompleted(f.Context(), nil, id, steps[1]),
						c.ReportStepCompleted(f.Context(), nil, id, steps[1]))
				},
			},
			"cancelling": {
				join.StartParams{Open: true}, outbox.JoinEvent{Status: join.Cancelled}, "cancelled",
				func(c *join.Coordinator, _ *outbox.Outbox, id join.ID, _ []outbox.MessageID) error {
					return c.Cancel(f.Context(), nil, id)
				},
			},
			"sealing": {
				join.StartParams{Open: true, Quorum: 3}, outbox.JoinEvent{Status: join.Failed, Expected: 2}, "failed",
				func(c *join.Coordinator, _ *outbox.Outbox, id join.ID, _ []outbox.MessageID) error {
					return c.Seal(f.Context(), nil, id)
				},
			},
			"attaching": {
				join.StartParams{Open: true, Quorum: 1}, outbox.JoinEvent{Status: join.Completed, Completed: 1}, "completed",
				func(c *join.Coordinator, o *outbox.Outbox, id join.ID, _ []outbox.MessageID) error {
					done := f.ClaimOne("done")
					f.Settle(suite.Settled(outbox.Ack, done)...)
					return c.Attach(f.Context(), nil, id, done.ID)
				},
			},
		} {
			f.Clear()
			id := f.Start(c, end.join)
			steps := f.AddSteps(c, id, "s", 2)
			f.Wait(c, suite.Waits(id, "next", "")) // of several topics a join ends once all the same
			f.Wait(f.Joins(func(c *join.Config) { c.WaitTopic = "more" }), suite.Waits(id, "next", ""))

			book := suite.NewLogBook()
			var told []outbox.JoinEvent
			hooks := outbox.Hooks{OnJoinEnd: func(e outbox.JoinEvent) { told = append(told, e) }}
			config := f.Config
			config.Hooks = hooks
			o, err := outbox.New(f.DB.DB, config, book)
			f.NoError(err)
			f.NoError(end.end(f.JoinsLogging(book, func(c *join.Config) { c.Hooks = hooks }), o, id, steps), name)
			line := f.one(book, "INFO", "Join ended")
			f.Equal(id.String(), line.Fields["join_id"], name)
			f.Equal(end.status, line.Fields["status"], name)
			f.Equal([]any{end.want.Expected, end.want.Completed, end.want.Failed},
				[]any{line.Fields["expected"], line.Fields["completed"], line.Fields["failed"]}, name)
			end.want.ID = id
			f.Equal([]outbox.JoinEvent{end.want}, told, name)
		}
	})
}

func TestJOIN073_WhatAWaitDecidesIsLogged(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		c := f.JoinsLogging(book, func(c *join.Config) { c.RecheckInterval = 5 * time.Millisecond })
		f.RunWaits(c)
		id, _ := f.StartWith(c, "s", 1)
		f.Wait(c, suite.Waits(id, "next", ""))
		f.Equal(id.String(), f.Await(book, "DEBUG", "waits on").Fields["join_id"])
		f.EndSteps("s", 0)
		line := f.Await(book, "DEBUG", "continues with next")
		f.Equal(id.String(), line.Fields["join_id"])
		f.Equal("completed", line.Fields["status"])

		failed, _ := f.StartWith(c, "s", 1)
		w := suite.Waits(failed, "next", "")
		w.FailIfAnyStepFailed = true
		f.Wait(c, w)
		w.OnFail = &join.Continuation{Topic: "failure"}
		f.Wait(c, w)
		f.EndSteps("s", 1)
		f.Equal(failed.String(), f.Await(book, "DEBUG", "nothing follows").Fields["join_id"])
		f.Equal(failed.String(), f.Await(book, "DEBUG", "continues with failure").Fields["join_id"])

		parent := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachJoin(f.Context(), nil, parent, failed))
		f.Equal(failed.String(), f.Await(book, "DEBUG", "parent").Fields["join_id"])
	})
}

// Payloads and metadata appear in no line.
func TestJOIN073_OBX119_PayloadsOfContinuationsAreNeverLogged(t *testing.T) {
	const secret = "4111-1111-1111-1111"
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		c := f.JoinsLogging(book)
		f.RunWaits(c)
		id, _ := f.StartWith(c, "s", 1)
		w := suite.Waits(id, "next", "")
		w.OnComplete.Payload = []byte(secret)
		wait := f.Wait(c, w)
		_, err := c.EnqueueWait(f.Context(), nil, join.Wait{Join: join.ID{1}, OnComplete: w.OnComplete})
		f.NotContains(err.Error(), secret)
		bad := f.Enqueue(outbox.Message{Topic: join.DefaultWaitTopic, Payload: []byte(`{"join_id": "` + secret + `"}`)})[0]
		f.EndSteps("s", 0)
		f.Continues(wait, "next")
		f.NotContains(f.Becomes(bad, outbox.Failed).LastError, secret)
		f.NotEmpty(book.Lines())
		for _, line := range book.Lines() {
			f.NotContains(line.String(), secret)
		}
	})
}
