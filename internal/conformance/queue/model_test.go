package queue_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// The queue against a model of it: random calls, and after each of them the table is what the model says.
func TestTrap_TheQueueDoesWhatItsModelDoes(t *testing.T) { queueDoesWhatItsModelDoes(t, 1) }

func TestLong_TheQueueDoesWhatItsModelDoes(t *testing.T) { queueDoesWhatItsModelDoes(t, 10) }

func queueDoesWhatItsModelDoes(t *testing.T, rounds int) {
	t.Helper()
	forEach(t, func(t *testing.T, f *fixture) {
		for range rounds {
			f.followsItsModel()
		}
	})
}

// followsItsModel does the same to the queue and to its model, in any order.
func (f *fixture) followsItsModel() {
	f.T.Helper()
	rapid.Check(f.T, func(rt *rapid.T) {
		f.Clear()
		m := &model{f: f, rows: map[outbox.MessageID]*modelRow{}}
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue": m.enqueue, "claim": m.claim, "settle": m.settle, "renew": m.renew, "reap": m.reap,
			"requeue": m.requeue, "purge": m.purge, "time passes": m.timePasses, "leases run out": m.leasesRunOut,
			"": m.check,
		})
		f.CheckInvariants()
	})
}

// A model is the queue in memory.
type model struct {
	f        *fixture
	rows     map[outbox.MessageID]*modelRow
	receipts []outbox.Receipt // of all claims ever made, held or not
	last     outbox.WorkItemID
}

type modelRow struct {
	seq     outbox.WorkItemID
	topic   string
	status  outbox.Status
	retries int
	owner   outbox.OwnerToken
	expired bool // its lease has
	due     bool
	place   int // by next_attempt_at in the table: due rows are taken in this order
	failure string
}

var modelTopics = []string{"a", "b", "c"}

func (m *model) enqueue(t *rapid.T) {
	var messages []outbox.Message
	for range rapid.IntRange(1, 6).Draw(t, "messages") {
		message := outbox.Message{Topic: rapid.SampledFrom(modelTopics).Draw(t, "topic")}
		if rapid.Bool().Draw(t, "later") {
			message.Delay = time.Hour
		}
		messages = append(messages, message)
	}
	for i, id := range m.f.Enqueue(messages...) {
		r := m.f.Row(id)
		if r.Seq <= m.last {
			t.Fatalf("seq %d after %d", r.Seq, m.last)
		}
		m.last = r.Seq
		m.rows[id] = &modelRow{seq: r.Seq, topic: messages[i].Topic, due: messages[i].Delay == 0}
	}
}

func (m *model) claim(t *rapid.T) {
	params := outbox.ClaimParams{Limit: rapid.IntRange(1, 8).Draw(t, "limit"), GiveBack: rapid.SampledFrom([]int{-1, 2, 100}).Draw(t, "give back")}
	for _, topic := range rapid.Permutation(modelTopics).Draw(t, "topics")[:rapid.IntRange(1, 3).Draw(t, "number of topics")] {
		params.Topics = append(params.Topics, outbox.TopicQuota{Topic: topic, Quota: rapid.IntRange(0, 4).Draw(t, "quota")})
	}
	expired := m.count(func(r *modelRow) bool { return r.status == outbox.InProgress && r.expired })
	claimed := m.f.ClaimWith(params)

	// Which of several expired leases are given back is the database's choice; where it is one, look.
	if n := m.giveBack(t); n > expired || params.GiveBack < 0 && n > 0 || params.GiveBack == 100 && n < expired {
		t.Fatalf("%d of %d messages with an expired lease were given back", n, expired)
	}
	m.readOrder() // claiming changes none, and what is given back is due last
	var want []outbox.WorkItemID
	left := params.Limit
	for _, topic := range params.Topics {
		ready := m.ready(topic.Topic)
		n := min(len(ready), left)
		if topic.Quota > 0 {
			n = min(n, topic.Quota)
		}
		for _, r := range ready[:n] {
			want = append(want, r.seq)
		}
		left -= n
	}
	slices.Sort(want)
	if got := suite.Seqs(claimed); !slices.Equal(got, want) {
		t.Fatalf("claimed %v, want %v", got, want)
	}
	for _, c := range claimed {
		r := m.rows[c.ID]
		if c.RetryCount != r.retries || c.Topic != r.topic {
			t.Fatalf("%+v, want %+v", c, r)
		}
		r.status, r.owner, r.expired = outbox.InProgress, c.Receipt.Owner, false
		m.receipts = append(m.receipts, c.Receipt)
	}
}

// giveBack finds the messages that were given back: those whose owner has changed. The messages of one claim come back together.
func (m *model) giveBack(t *rapid.T) (n int) {
	back, held := map[outbox.OwnerToken]bool{}, map[outbox.OwnerToken]bool{}
	for id, r := range m.rows {
		if r.status != outbox.InProgress || !r.expired {
			continue
		}
		if m.f.Row(id).Owner == r.owner {
			held[r.owner] = true
			continue
		}
		back[r.owner] = true
		r.status, r.owner, r.expired, r.failure = outbox.Ready, outbox.OwnerToken{}, false, "lease"
		r.retries++
		r.due = true
		n++
	}
	for owner := range back {
		if held[owner] {
			t.Fatalf("a part of what %v has claimed was given back", owner)
		}
	}
	return n
}

func (m *model) settle(t *rapid.T) {
	var settlements []outbox.Settlement
	var want, backoff []outbox.WorkItemID
	seen := map[outbox.Receipt]bool{}
	for range rapid.IntRange(1, 6).Draw(t, "settlements") {
		s := outbox.Settlement{Receipt: m.receipt(t), Outcome: outbox.Outcome(rapid.IntRange(0, 3).Draw(t, "outcome"))}
		if rapid.Bool().Draw(t, "with an error") && s.Outcome != outbox.Ack {
			s.Err = errors.New("failure " + fmt.Sprint(s.Outcome))
		}
		s.Delay = rapid.SampledFrom([]time.Duration{0, -1, time.Hour}).Draw(t, "delay")
		settlements = append(settlements, s)
		if seen[s.Receipt] {
			continue // the first counts
		}
		seen[s.Receipt] = true
		r := m.held(s.Receipt)
		if r == nil {
			want = append(want, s.Receipt.Seq)
			continue
		}
		r.apply(s)
		if s.Outcome == outbox.Retry && s.Delay == 0 {
			backoff = append(backoff, s.Receipt.Seq)
		}
	}
	got := m.f.Settle(settlements...)
	for _, seq := range backoff { // it ends while a slow machine is on its way to look
		m.f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {future} WHERE {seq} = %d", seq)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("refused %v, want %v", got, want)
	}
}

func (r *modelRow) apply(s outbox.Settlement) {
	r.owner, r.expired = outbox.OwnerToken{}, false
	if s.Err != nil {
		r.failure = s.Err.Error()
	}
	switch s.Outcome {
	case outbox.Ack:
		r.status = outbox.Done
	case outbox.Fail:
		r.status = outbox.Failed
	case outbox.Retry:
		r.status, r.due = outbox.Ready, s.Delay == -1
		r.retries++
	case outbox.Release:
		r.status, r.due = outbox.Ready, s.Delay != time.Hour
	}
}

func (m *model) renew(t *rapid.T) {
	var receipts []outbox.Receipt
	var want []outbox.WorkItemID
	seen := map[outbox.Receipt]bool{}
	for range rapid.IntRange(1, 4).Draw(t, "receipts") {
		receipt := m.receipt(t)
		receipts = append(receipts, receipt)
		if seen[receipt] {
			continue
		}
		seen[receipt] = true
		for _, same := range m.rows { // what a claim has taken has one lease
			same.expired = same.expired && same.owner != receipt.Owner
		}
		if m.held(receipt) == nil {
			want = append(want, receipt.Seq)
		}
	}
	got, err := m.f.Outbox.Renew(m.f.Context(), time.Minute, receipts...)
	m.f.NoError(err)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("refused %v, want %v", got, want)
	}
}

// receipt is one of an earlier claim, or one that never was.
func (m *model) receipt(t *rapid.T) outbox.Receipt {
	if len(m.receipts) == 0 || rapid.IntRange(0, 9).Draw(t, "forged") == 0 {
		return outbox.Receipt{Seq: outbox.WorkItemID(rapid.IntRange(1, 1000).Draw(t, "seq")), Owner: outbox.OwnerToken{1}}
	}
	recent := m.receipts[max(0, len(m.receipts)-20):]
	return rapid.SampledFrom(recent).Draw(t, "receipt")
}

func (m *model) held(receipt outbox.Receipt) *modelRow {
	for _, r := range m.rows {
		if r.seq == receipt.Seq && r.status == outbox.InProgress && r.owner == receipt.Owner {
			return r
		}
	}
	return nil
}

func (m *model) reap(t *rapid.T) {
	expired := m.count(func(r *modelRow) bool { return r.status == outbox.InProgress && r.expired })
	n, err := m.f.Outbox.ReapExpired(m.f.Context())
	m.f.NoError(err)
	if n != expired {
		t.Fatalf("reaped %d, want %d", n, expired)
	}
	if back := m.giveBack(t); back != expired {
		t.Fatalf("gave back %d, want %d", back, expired)
	}
}

func (m *model) requeue(t *rapid.T) {
	topic := rapid.SampledFrom(append(modelTopics, "")).Draw(t, "topic")
	failed := func(r *modelRow) bool { return r.status == outbox.Failed && (topic == "" || r.topic == topic) }
	want := m.count(failed)
	n, err := m.f.Outbox.Requeue(m.f.Context(), outbox.RequeueParams{Topic: topic, All: topic == ""})
	m.f.NoError(err)
	if n != want {
		t.Fatalf("requeued %d, want %d", n, want)
	}
	for _, r := range m.rows {
		if failed(r) {
			r.status, r.retries, r.due = outbox.Ready, 0, true
		}
	}
}

func (m *model) purge(t *rapid.T) {
	status := rapid.SampledFrom([]outbox.Status{outbox.Done, outbox.Failed}).Draw(t, "status")
	want := m.count(func(r *modelRow) bool { return r.status == status })
	m.f.Exec("UPDATE {outbox} SET {created_at} = {past}")
	m.f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} = %d", status)
	n, err := m.f.Outbox.Purge(m.f.Context(), outbox.PurgeParams{OlderThan: time.Minute, Failed: status == outbox.Failed})
	m.f.NoError(err)
	if n != want {
		t.Fatalf("purged %d, want %d", n, want)
	}
	maps.DeleteFunc(m.rows, func(_ outbox.MessageID, r *modelRow) bool { return r.status == status })
}

func (m *model) timePasses(*rapid.T) {
	m.f.MakeDue()
	for _, r := range m.rows {
		r.due = r.due || r.status == outbox.Ready
	}
}

func (m *model) leasesRunOut(*rapid.T) {
	m.f.ExpireLeases()
	for _, r := range m.rows {
		r.expired = r.status == outbox.InProgress
	}
}

// check compares the table with the model.
func (m *model) check(t *rapid.T) {
	rows := m.f.Rows("1 = 1")
	if len(rows) != len(m.rows) {
		t.Fatalf("%d messages, want %d", len(rows), len(m.rows))
	}
	for _, got := range rows {
		want := m.rows[got.ID]
		switch {
		case want == nil:
			t.Fatalf("%v is not known", got.ID)
		case got.Seq != want.seq, got.Status != int(want.status), got.Retries != want.retries, got.Owner != want.owner:
			t.Fatalf("%+v, want %+v", got, want)
		case want.status == outbox.Ready && got.IsDue != want.due:
			t.Fatalf("%+v is due: %v, want %v", got, got.IsDue, want.due)
		case want.failure != "lease" && got.LastError != want.failure:
			t.Fatalf("%+v has the error %q, want %q", got, got.LastError, want.failure)
		case want.failure == "lease" && !got.HasError:
			t.Fatalf("%+v has no error", got)
		}
	}
}

// readOrder reads in which order the rows that are due are to be taken; it is made of times that the model does not know.
func (m *model) readOrder() {
	place := map[outbox.WorkItemID]int{}
	rows, err := m.f.DB.QueryContext(m.f.Context(), m.f.SQL("SELECT {seq} FROM {all} ORDER BY {next_attempt_at}, {seq}"))
	m.f.NoError(err)
	defer func() { m.f.NoError(rows.Close()) }()
	for rows.Next() {
		var seq outbox.WorkItemID
		m.f.NoError(rows.Scan(&seq))
		place[seq] = len(place)
	}
	m.f.NoError(rows.Err())
	for _, r := range m.rows {
		r.place = place[r.seq]
	}
}

func (m *model) ready(topic string) (rows []*modelRow) {
	for _, r := range m.rows {
		if r.topic == topic && r.status == outbox.Ready && r.due {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b *modelRow) int { return cmp.Compare(a.place, b.place) })
	return rows
}

func (m *model) count(f func(*modelRow) bool) (n int) {
	for _, r := range m.rows {
		if f(r) {
			n++
		}
	}
	return n
}
