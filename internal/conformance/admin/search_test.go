package admin_test

import (
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

// Twelve of a few thousand are found by their error, in pages that neither repeat nor leave out.
func TestFailedFindsByError(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.Enqueue("orders", 0, 1200)
		f.Enqueue("rare", 5000, 12)
		f.fail("orders", "no such customer", 0)
		f.fail("rare", "the card was refused: 100 % of it", 0)
		f.Enqueue("orders", 1200, 300)
		f.fail("orders", "no such customer", 0)

		found := map[string]bool{}
		params := admin.ListParams{Filter: admin.Filter{Error: "refused: 100 % of"}, Limit: 5}
		for pages := 1; ; pages++ {
			list, err := f.admin.Failed(ctx, params)
			f.NoError(err)
			for _, m := range list.Messages {
				f.False(found[m.UUID], "%s is listed twice", m.UUID)
				found[m.UUID] = true
				f.Equal("rare", m.Topic)
				f.Equal(outbox.Failed, m.Status)
				f.Equal("the card was refused: 100 % of it", m.LastError)
				f.False(m.EndedAt.IsZero())
				f.NotEmpty(m.EndedBy)
				f.Positive(m.Size)
			}
			params.After = list.Next
			if list.Next.IsZero() {
				f.Equal(3, pages)
				break
			}
			again, err := admin.ParseMark(list.Next.String())
			f.NoError(err)
			f.Equal(list.Next, again)
		}
		f.Len(found, 12)

		// Upper and lower case differ, and nothing in the text is a pattern.
		for _, text := range []string{"Refused", "refus%", "ref_sed", "[r]efused"} {
			list, err := f.admin.Failed(ctx, admin.ListParams{Filter: admin.Filter{Error: text}})
			f.NoError(err)
			f.Empty(list.Messages, text)
			f.Equal(1512, list.Examined)
		}
	})
}

func TestFailedGoesFromTheNewest(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for i := range 7 {
			f.Enqueue("orders", i, 1)
			f.fail("orders", "broken", 0)
			f.passes()
		}
		params := admin.ListParams{Limit: 3}
		var all []string
		for {
			list, err := f.admin.Failed(t.Context(), params)
			f.NoError(err)
			all = append(all, uuids(list.Messages)...)
			if params.After = list.Next; params.After.IsZero() {
				break
			}
		}
		f.Equal([]string{"6", "5", "4", "3", "2", "1", "0"}, all)

		one, err := f.admin.Failed(t.Context(), admin.ListParams{Limit: 1})
		f.NoError(err)
		rest, err := f.admin.Failed(t.Context(), admin.ListParams{Filter: admin.Filter{Since: one.Messages[0].EndedAt.Add(-2 * time.Hour), Until: one.Messages[0].EndedAt.Add(-time.Hour)}})
		f.NoError(err)
		f.Empty(rest.Messages)
	})
}

// Every field of a filter finds its message among others.
func TestMessagesByEachField(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		f.Enqueue("other", 0, 50)
		_, err := f.Outbox.Outbox.Enqueue(ctx, f.DB.DB, outbox.Message{UUID: "U-1", Topic: "orders", CorrelationID: "trace 7", StreamKey: "customer's", Payload: []byte("x")})
		f.NoError(err)
		f.Enqueue("other", 50, 50)
		for name, filter := range map[string]admin.Filter{
			"topic": {Topic: "orders"}, "uuid": {UUID: "U-1"}, "correlation id": {CorrelationID: "trace 7"}, "stream": {StreamKey: "customer's"},
			"all": {Topic: "orders", UUID: "U-1", CorrelationID: "trace 7", StreamKey: "customer's", States: []outbox.Status{outbox.Ready, outbox.Done}},
		} {
			list, err := f.admin.Messages(ctx, admin.ListParams{Filter: filter})
			f.NoError(err, name)
			f.Equal([]string{"U-1"}, uuids(list.Messages), name)
			f.True(list.Next.IsZero())
		}
		for name, filter := range map[string]admin.Filter{
			"topic": {Topic: "Orders"}, "uuid": {UUID: "u-1"}, "correlation id": {CorrelationID: "trace"}, "state": {Topic: "orders", States: []outbox.Status{outbox.Done}},
			"no state": {Topic: "orders", States: []outbox.Status{}}, "time": {Topic: "orders", Until: time.Now().Add(-time.Hour)},
		} {
			list, err := f.admin.Messages(ctx, admin.ListParams{Filter: filter})
			f.NoError(err, name)
			if name == "no state" {
				f.Len(list.Messages, 1, "an empty list restricts nothing")
				continue
			}
			f.Empty(list.Messages, name)
		}
		var all []string
		for params := (admin.ListParams{Limit: 40}); ; {
			list, err := f.admin.Messages(ctx, params)
			f.NoError(err)
			all = append(all, uuids(list.Messages)...)
			if params.After = list.Next; params.After.IsZero() {
				break
			}
		}
		f.Len(all, 101)
		f.Equal("99", all[0])
		f.Equal("0", all[100])
	})
}

func TestASearchEndsWhereItIsTold(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 30)
		list, err := f.admin.Messages(t.Context(), admin.ListParams{Filter: admin.Filter{UUID: "0"}, Examine: 20})
		f.NoError(err)
		f.Empty(list.Messages)
		f.Equal(20, list.Examined)
		f.False(list.Next.IsZero())
		list, err = f.admin.Messages(t.Context(), admin.ListParams{Filter: admin.Filter{UUID: "0"}, Examine: 20, After: list.Next})
		f.NoError(err)
		f.Equal([]string{"0"}, uuids(list.Messages))
	})
}

func TestErrorsAreCounted(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for i, reason := range []string{"broken", "broken", "refused", "broken"} {
			f.Enqueue(fmt.Sprint("topic ", i%2), i*10, 10)
			f.fail(fmt.Sprint("topic ", i%2), reason, 0)
			f.passes()
		}
		counts, err := f.admin.Errors(t.Context(), admin.ErrorParams{Limit: 2})
		f.NoError(err)
		f.Equal(40, counts.Total)
		f.Equal(10, counts.Others)
		f.Len(counts.Groups, 2)
		f.Equal("topic 1", counts.Groups[0].Topic)
		f.Equal("broken", counts.Groups[0].Error)
		f.Equal(20, counts.Groups[0].Count)
		f.True(counts.Groups[0].First.Before(counts.Groups[0].Last))
		f.Contains([]string{"30", "31", "32", "33", "34", "35", "36", "37", "38", "39"}, counts.Groups[0].Example.UUID)
	})
}

func TestBadFiltersAreNamed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		now := time.Now()
		for want, params := range map[string]admin.ListParams{
			"ListParams.Limit":         {Limit: 1001},
			"ListParams.Examine":       {Examine: -1},
			"ListParams.Filter.Topic":  {Filter: admin.Filter{Topic: " x"}},
			"ListParams.Filter.Error":  {Filter: admin.Filter{Error: "\x00"}},
			"ListParams.Filter.Until":  {Filter: admin.Filter{Since: now, Until: now.Add(-time.Second)}},
			"ListParams.Filter.States": {Filter: admin.Filter{States: []outbox.Status{outbox.Failed}}},
		} {
			_, err := f.admin.Failed(t.Context(), params)
			var bad *outbox.FieldError
			f.ErrorAs(err, &bad, want)
			f.Equal(want, bad.Field)
		}
		for _, params := range []admin.ActParams{
			{}, {All: true, Filter: admin.Filter{Topic: "x"}}, {IDs: []outbox.MessageID{}, Filter: admin.Filter{Topic: "x"}}, {All: true, IDs: []outbox.MessageID{}},
		} {
			_, err := f.admin.Requeue(t.Context(), params)
			var bad *outbox.FieldError
			f.ErrorAs(err, &bad)
		}
	})
}
