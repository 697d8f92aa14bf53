package flow_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/flow"
)

type parcel struct {
	topic string
	bytes int64
}

func (p parcel) weight() (string, int64) { return p.topic, p.bytes }

func newWindow(limits flow.Limits) *flow.Window[parcel] { return flow.NewWindow(limits, parcel.weight) }

func parcels(n int, topic string, bytes int64) []parcel {
	all := make([]parcel, n)
	for i := range all {
		all[i] = parcel{topic, bytes}
	}
	return all
}

func ask(w *flow.Window[parcel], topics []string) flow.Allowance {
	a := w.Allow(topics)
	w.Ask(a)
	return a
}

func claimed(w *flow.Window[parcel], parcels ...parcel) {
	w.Ask(flow.Allowance{})
	w.Claimed(flow.Allowance{}, parcels)
}

func TestATopicWithNothingOutHasAPlaceKept(t *testing.T) {
	w := newWindow(flow.Limits{Messages: 8, PerTopic: 8, Bytes: 1000, Batch: 100})
	claimed(w, parcels(2, "busy", 1)...)
	a := w.Allow([]string{"busy", "idle"})
	require.Equal(t, []flow.Quota{{"busy", 5}, {"idle", 5}}, a.Quotas)
	require.Equal(t, 6, a.Limit)
	claimed(w, parcels(5, "busy", 1)...)
	require.Equal(t, []flow.Quota{{"idle", 1}}, w.Allow([]string{"busy", "idle"}).Quotas)
	require.Equal(t, map[string]int{"busy": 7}, w.InFlight())
}

func TestATopicGetsNoMoreThanItsShare(t *testing.T) {
	w := newWindow(flow.Limits{Messages: 8, PerTopic: 2, Bytes: 1000, Batch: 100})
	claimed(w, parcels(2, "a", 1)...)
	require.Zero(t, w.Allow([]string{"a"}).Limit)
	require.Equal(t, []flow.Quota{{"b", 2}}, w.Allow([]string{"a", "b"}).Quotas)
}

// What is out may stay out for long: nobody else tells whoever waits for room.
func TestAWindowThatWidensHasRoom(t *testing.T) {
	orders := []string{"orders"}
	w := newWindow(flow.Limits{Messages: 4, PerTopic: 4, Bytes: 1000, Batch: 2})
	claimed(w, parcels(2, "orders", 1)...)
	w.Narrow()
	require.Zero(t, w.Allow(orders).Limit)
	require.Empty(t, w.Freed())
	w.Widen()
	require.Len(t, w.Freed(), 1)
	require.Equal(t, 1, w.Allow(orders).Limit)
	<-w.Freed()
	w.Widen()
	<-w.Freed()
	w.Widen()
	require.Empty(t, w.Freed(), "it is as wide as it was")
}

// A second claim runs beside one that is likely to be full, and both together stay within all limits.
func TestASecondClaimBesideOneThatIsLikelyToBeFull(t *testing.T) {
	orders := []string{"orders"}
	limits := flow.Limits{Messages: 20, PerTopic: 20, Bytes: 400, Batch: 10}
	full := func(t *testing.T, limits flow.Limits, bytes int64) (*flow.Window[parcel], flow.Allowance) {
		w := newWindow(limits)
		a := ask(w, orders)
		require.Zero(t, w.AskBeside(orders).Limit, "the first may not be full")
		w.Claimed(a, parcels(9, "orders", bytes)) // one place is kept for a topic with nothing out
		return w, ask(w, orders)
	}
	answer := func(w *flow.Window[parcel], n int, bytes int64) {
		w.Answered(parcels(n, "orders", bytes))
		w.Settled(parcels(n, "orders", bytes))
	}

	t.Run("as much as there is room for", func(t *testing.T) {
		w, first := full(t, limits, 1)
		require.Equal(t, 10, first.Limit)
		require.Equal(t, int64(400-9-100), first.Bytes, "it leaves a quarter")
		require.Zero(t, w.AskBeside(orders).Limit, "no place is left")
		answer(w, 3, 1)
		require.Empty(t, w.RoomBeside())
		require.Zero(t, w.AskBeside(orders).Limit, "one claim of all is cheaper")
		answer(w, 2, 1)
		<-w.RoomBeside()
		second := w.AskBeside(orders)
		require.Equal(t, flow.Allowance{Quotas: []flow.Quota{{"orders", 6}}, Limit: 6, Bytes: 100, AllFit: true}, second)
		require.Zero(t, w.AskBeside(orders).Limit, "two are enough")
		require.Zero(t, w.Allow(orders).Limit, "all places are asked for")
		w.Claimed(second, parcels(1, "orders", 1))
		require.Zero(t, w.AskBeside(orders).Limit, "there is no more")
		w.Claimed(first, parcels(10, "orders", 1))
		require.Equal(t, 5, w.Allow(orders).Limit, "what the second did not bring is free again")
	})
	t.Run("not without bytes", func(t *testing.T) {
		w, first := full(t, limits, 1)
		answer(w, 9, 1)
		second := w.AskBeside(orders)
		require.Equal(t, 9, second.Limit)
		w.Claimed(first, nil)
		third := ask(w, orders)
		require.Equal(t, int64(400-100), third.Bytes, "all that the second leaves: it is not likely to be full")
		w.Claimed(second, parcels(9, "orders", 1))
		answer(w, 9, 0)
		require.Zero(t, w.AskBeside(orders).Limit)
	})
	t.Run("not with the bytes that are kept for a topic with nothing out", func(t *testing.T) {
		topics := []string{"a", "b"}
		w := newWindow(limits)
		out := append(parcels(5, "a", 15), parcels(5, "b", 15)...)
		w.Claimed(ask(w, append(topics, "c")), out)
		first := ask(w, topics)
		require.Equal(t, int64(400-150-100), first.Bytes)
		w.Answered(out)
		require.Zero(t, w.AskBeside(topics).Limit)
		w.Settled(out)
		require.NotZero(t, w.AskBeside(topics).Limit, "all that the last claim might bring was of two topics")
	})
	t.Run("not of heavy messages", func(t *testing.T) {
		w, first := full(t, limits, 20)
		require.Equal(t, int64(400-180), first.Bytes, "a first message may be of any size: it leaves nothing")
		w.Answered(parcels(9, "orders", 20))
		require.Zero(t, w.AskBeside(orders).Limit)
	})
	t.Run("not more of a topic than its share", func(t *testing.T) {
		limits := limits
		limits.PerTopic = 13
		w, first := full(t, limits, 1)
		require.Equal(t, []flow.Quota{{"orders", 4}}, first.Quotas)
		answer(w, 8, 1)
		require.Equal(t, []flow.Quota{{"orders", 13 - 1 - 4}}, w.AskBeside(orders).Quotas)
	})
	t.Run("not for a few places of several topics", func(t *testing.T) {
		w := newWindow(flow.Limits{Messages: 30, PerTopic: 6, Bytes: 400, Batch: 10})
		w.Claimed(ask(w, []string{"a", "b"}), append(parcels(5, "a", 1), parcels(5, "b", 1)...))
		first := ask(w, []string{"a", "b"})
		require.Equal(t, 2, first.Limit, "one of each")
		w.Answered(parcels(1, "a", 1))
		require.Zero(t, w.AskBeside([]string{"a", "b"}).Limit)
	})
	t.Run("not the place and the bytes that are kept for a topic with nothing out", func(t *testing.T) {
		topics := []string{"busy", "idle"}
		w := newWindow(limits)
		a := ask(w, topics)
		require.Equal(t, []flow.Quota{{"busy", 8}, {"idle", 8}}, a.Quotas)
		out := append(parcels(8, "busy", 1), parcels(1, "idle", 1)...)
		w.Claimed(a, out) // of one topic all that it might
		first := ask(w, topics)
		require.Equal(t, int64(400-9-200), first.Bytes)
		w.Answered(out)
		w.Settled(out)
		second := w.AskBeside(topics)
		require.Equal(t, int64(100), second.Bytes)
		w.Claimed(first, parcels(first.Quotas[0].Quota, "busy", 1))
		w.Claimed(second, parcels(second.Quotas[0].Quota, "busy", 1))
		require.Equal(t, []flow.Quota{{"busy", 1}, {"idle", 1}}, w.Allow(topics).Quotas)
	})
}

func TestAnAnswerMakesRoomAndItsSettlementMore(t *testing.T) {
	w := newWindow(flow.Limits{Messages: 2, PerTopic: 2, Bytes: 1000, Batch: 1})
	for range 4 {
		require.Equal(t, 1, w.Allow([]string{"a"}).Limit)
		claimed(w, parcels(1, "a", 1)...)
		w.Answered(parcels(1, "a", 1))
		<-w.Freed()
	}
	require.Zero(t, w.Allow([]string{"a"}).Limit, "four batches wait to be settled")
	w.Settled(parcels(1, "a", 1))
	<-w.Freed()
	require.Equal(t, 1, w.Allow([]string{"a"}).Limit)
	require.Empty(t, w.InFlight())
}

// Large messages: claims wait until half is free, then the first may be of any size.
func TestAWindowOfBytes(t *testing.T) {
	w := newWindow(flow.Limits{Messages: 100, PerTopic: 100, Bytes: 100, Batch: 100})
	require.Equal(t, int64(75), w.Allow([]string{"a", "b"}).Bytes, "a quarter is kept for the other topic")
	claimed(w, parcels(1, "a", 60)...)
	a := w.Allow([]string{"a", "b"})
	require.Equal(t, []flow.Quota{{"b", 1}}, a.Quotas)
	require.Equal(t, int64(40), a.Bytes)
	require.True(t, a.AllFit)
	claimed(w, parcels(1, "b", 40)...)
	require.Zero(t, w.Allow([]string{"a", "b"}).Limit)
	w.Answered(parcels(1, "a", 60))
	require.Zero(t, w.Allow([]string{"a", "b"}).Limit, "its payload is held until it is settled")
	w.Settled(parcels(1, "a", 60))
	require.False(t, w.Allow([]string{"a"}).AllFit)
}

func TestAWindowNarrowsAndWidens(t *testing.T) {
	w := newWindow(flow.Limits{Messages: 10, PerTopic: 10, Bytes: 1000, Batch: 100})
	for range 10 {
		w.Narrow()
	}
	require.Equal(t, 1, w.Allow([]string{"a"}).Limit, "one is always allowed")
	w.Widen()
	require.Equal(t, 2, w.Allow([]string{"a"}).Limit)
	for range 10 {
		w.Widen()
	}
	require.Equal(t, 9, w.Allow([]string{"a"}).Limit, "one place is kept for topics with nothing out")
}
