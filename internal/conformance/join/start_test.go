package join_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

func TestJOIN001_005_006_OBX074_075_076_AStartedJoinIsPendingAndHasCountedNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		before := f.Now()
		id, err := c.Start(f.Context(), f.DB, join.StartParams{GroupingKey: "tenant 7", ExpectedSteps: 3, Metadata: "phase 1"})
		f.NoError(err)
		after := f.Now()
		another := f.Start(c, join.StartParams{ExpectedSteps: 3})
		f.NotEqual(id, another)
		f.Equal(2, f.JoinCount())

		r := f.JoinRow(id)
		f.Equal([]int{0, 0, 0, 0}, []int{r.Completed, r.Failed, r.Status, r.Members})
		f.Equal("tenant 7", r.Key.String)
		f.Equal("phase 1", r.Metadata.String)
		f.Equal(int64(3), r.Expected.Int64)
		f.Between(before, after, r.Created)
		f.Equal(r.Created, r.Updated, "one moment, of the database's clock")

		j := f.Join(c, id)
		f.SameTime(r.Created, j.CreatedAt)
		f.SameTime(r.Updated, j.LastUpdatedAt)
		j.CreatedAt, j.LastUpdatedAt = time.Time{}, time.Time{}
		f.Equal(join.Join{ID: id, GroupingKey: "tenant 7", ExpectedSteps: 3, Metadata: "phase 1"}, j)

		_, err = c.Get(f.Context(), nil, join.ID{1})
		f.ErrorIs(err, join.ErrNotFound)
	})
}

func TestJOIN002_AJoinOfNoStepsIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		for field, bad := range map[string][]join.StartParams{
			"StartParams.ExpectedSteps": {
				{}, {ExpectedSteps: -1}, {ExpectedSteps: -1 << 31}, {ExpectedSteps: 1 << 31}, {Open: true, ExpectedSteps: 1}, {Quorum: 1},
			},
			"StartParams.Quorum": {
				{ExpectedSteps: 2, Quorum: 3}, {ExpectedSteps: 2, Quorum: -1}, {Open: true, Quorum: -1}, {Open: true, Quorum: 1 << 31},
			},
			"StartParams.FailFast": {{ExpectedSteps: 2, Quorum: 1, FailFast: true}},
			"StartParams.Metadata": {{ExpectedSteps: 1, Metadata: "a\x00b"}, {ExpectedSteps: 1, Metadata: "\xff"}},
		} {
			for _, params := range bad {
				id, err := c.Start(f.Context(), nil, params)
				f.RequireField(err, field)
				f.Equal(join.ID{}, id)
			}
		}
		f.Zero(f.JoinCount())
		most := f.Start(c, join.StartParams{ExpectedSteps: 1<<31 - 1, Quorum: 1<<31 - 1})
		f.Equal(1<<31-1, f.Join(c, most).ExpectedSteps)
	})
}

func TestJOIN003_OBX089_AJoinBelongsToTheGroupOfItsKey(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		none := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.False(f.JoinRow(none).Key.Valid, "no key is NULL")
		f.False(f.JoinRow(none).Metadata.Valid)
		f.Empty(f.Join(c, none).GroupingKey)

		keys := []string{"tenant", "Tenant", "ténant", "İ", "🙂", "a b", "%", "' OR 1 = 1", strings.Repeat("k", 255)}
		if f.Lacks(suite.UnescapesJSON) == "" {
			keys = append(keys, `"\`)
		}
		for _, key := range keys {
			id := f.Start(c, join.StartParams{GroupingKey: key, ExpectedSteps: 1})
			f.Equal(key, f.JoinRow(id).Key.String)
			found, err := c.ByGroup(f.Context(), nil, key, join.ID{}, 10)
			f.NoError(err)
			f.Len(found, 1, "no other key is the same as %q", key)
			f.Equal(id, found[0].ID)
			f.Equal(key, found[0].GroupingKey)
		}
		empty, err := c.ByGroup(f.Context(), nil, "nobody", join.ID{}, 10)
		f.NoError(err)
		f.Empty(empty)
	})
}

func TestJOIN004_AGroupingKeyThatCannotBeComparedIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		for _, key := range []string{
			strings.Repeat("k", 256), strings.Repeat("🙂", 128), " k", "k ", "k\n", " ", "a\x00b", "\xff",
		} {
			_, err := c.Start(f.Context(), nil, join.StartParams{GroupingKey: key, ExpectedSteps: 1})
			f.RequireField(err, "StartParams.GroupingKey")
		}
		f.Zero(f.JoinCount())
		id := f.Start(c, join.StartParams{GroupingKey: strings.Repeat("🙂", 127), ExpectedSteps: 1})
		f.Equal(strings.Repeat("🙂", 127), f.JoinRow(id).Key.String)
	})
}

func TestJoinMetadataComesBackAsItWas(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		texts := []string{" ", "Grüße 🙂", "<&>", "{a: [1, 2]}"}
		if f.Lacks(suite.UnescapesJSON) == "" {
			texts = append(texts, "{\"a\": [1, 2]}\n", `\`, "/")
		}
		if f.Lacks(suite.LongerJSONTexts) == "" {
			texts = append(texts, strings.Repeat("long ", 20_000))
		}
		for _, text := range texts {
			id := f.Start(c, join.StartParams{ExpectedSteps: 1, Metadata: text})
			f.Equal(text, f.Join(c, id).Metadata)
		}
	})
}

func TestJoinStartedInTheCallersTransactionLivesAndDiesWithIt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		for _, commit := range []bool{false, true} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			id, err := c.Start(f.Context(), tx, join.StartParams{ExpectedSteps: 1})
			f.NoError(err)
			j, err := c.Get(f.Context(), tx, id)
			f.NoError(err)
			f.Equal(id, j.ID)
			if commit {
				f.NoError(tx.Commit())
				f.Equal(1, f.JoinCount())
				continue
			}
			f.NoError(tx.Rollback())
			f.Zero(f.JoinCount())
			_, err = c.Get(f.Context(), nil, id)
			f.ErrorIs(err, join.ErrNotFound)
		}
	})
}

// The first thing that a connection does with joins is all of it: start, steps, and the wait.
func TestJoinIsStartedSentAndWaitedForInOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		for _, failure := range []error{errors.New("not this time"), nil} {
			var id join.ID
			err := outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) (err error) {
				id, err = c.Start(ctx, tx, join.StartParams{ExpectedSteps: 2})
				f.NoError(err)
				for range 2 { // attaching twice writes twice to what this transaction has inserted
					_, err = c.Enqueue(ctx, tx, id, outbox.Message{Topic: "s", Payload: []byte("step")})
					f.NoError(err)
				}
				_, err = c.EnqueueWait(ctx, tx, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
				f.NoError(err)
				return failure
			})
			f.Equal(failure, err)
			if failure != nil {
				f.Zero(f.JoinCount())
				f.Zero(f.Count())
				continue
			}
			f.Empty(f.Claim(join.DefaultWaitTopic))
			f.Empty(f.Settle(suite.Settled(outbox.Ack, f.Claim("s")...)...))
			f.Stands(c, id, join.Completed, 2, 0)
			f.Len(f.Claim(join.DefaultWaitTopic), 1)
		}
	})
}

func TestJOIN082_TheGroupingKeyHasAnIndex(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.IndexNames)
		f.Contains(f.Names("index"), f.Either("outbox_join_group", "IX_OutboxJoin_GroupingKey"))
	})
}

// A page begins after the last join of the page before, whatever the times of the joins say.
func TestJOIN082_TheJoinsOfAGroupArePaged(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		var want []join.ID
		for i := range 8 {
			id := f.Start(c, join.StartParams{GroupingKey: "g", ExpectedSteps: 1})
			want = append(want, id)
			f.Start(c, join.StartParams{GroupingKey: "G", ExpectedSteps: 1})
			// Whoever was given the earlier id may have written later.
			f.Exec("UPDATE {join} SET {created} = %s WHERE {join_id} = '%s'", []string{"{past}", "{now}", "{future}"}[i*5%3], id)
		}
		var got []join.ID
		var after join.ID
		for _, size := range []int{3, 3, 2, 0} {
			page, err := c.ByGroup(f.Context(), nil, "g", after, 3)
			f.NoError(err)
			f.Len(page, size)
			for _, j := range page {
				got = append(got, j.ID)
				after = j.ID
			}
		}
		f.ElementsMatch(want, got, "no gap, no repeat")
		if f.Lacks(suite.OrdersUUIDs) == "" {
			f.Equal(want, got, "in order of their start")
		}
	})
}

func TestPendingAndRecentJoinsArePaged(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		var all, pending []join.ID
		for i := range 8 {
			id := f.Start(c, join.StartParams{ExpectedSteps: 1})
			all = append(all, id)
			if i%3 == 0 {
				f.NoError(c.Cancel(f.Context(), nil, id))
			} else {
				pending = append(pending, id)
			}
		}
		pages := func(read func(context.Context, outbox.Executor, join.ID, int) ([]join.Join, error), sizes ...int) (got []join.ID) {
			var last join.ID
			for _, size := range sizes {
				page, err := read(f.Context(), nil, last, 3)
				f.NoError(err)
				f.Len(page, size)
				for _, j := range page {
					got = append(got, j.ID)
					last = j.ID
				}
			}
			return got
		}
		oldest, newest := pages(c.Pending, 3, 2, 0), pages(c.Recent, 3, 3, 2, 0)
		f.ElementsMatch(pending, oldest, "no gap, no repeat")
		f.ElementsMatch(all, newest, "no gap, no repeat")
		if f.Lacks(suite.OrdersUUIDs) == "" {
			f.Equal(pending, oldest, "in order of their start")
			slices.Reverse(newest)
			f.Equal(all, newest, "against the order of their start")
		}
	})
}

func TestJoinReadsRefuseWhatCannotBeMeant(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		for _, limit := range []int{-1, 0, 1001} {
			_, err := c.ByGroup(f.Context(), nil, "g", join.ID{}, limit)
			f.RequireField(err, "limit")
			_, err = c.Pending(f.Context(), nil, join.ID{}, limit)
			f.RequireField(err, "limit")
			_, err = c.Recent(f.Context(), nil, join.ID{}, limit)
			f.RequireField(err, "limit")
			_, err = c.Steps(f.Context(), nil, id, outbox.MessageID{}, limit)
			f.RequireField(err, "limit")
		}
		_, err := c.ByGroup(f.Context(), nil, "", join.ID{}, 1)
		f.RequireField(err, "key")
		_, err = c.Get(f.Context(), nil, join.ID{})
		f.RequireField(err, "join id")
		_, err = c.Steps(f.Context(), nil, join.ID{}, outbox.MessageID{}, 1)
		f.RequireField(err, "join id")
		_, err = c.Get(f.Context(), (*sql.Tx)(nil), id)
		f.ErrorIs(err, base.ErrNilDB, "a handle that is nil by mistake is not the pool")
		_, err = c.Purge(f.Context(), -1)
		f.RequireField(err, "olderThan")
	})
}

func TestJoinCoordinatorIsCheckedWhenItIsMade(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		good := join.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema}
		for _, bad := range []struct {
			field  string
			change func(*join.Config)
		}{
			{"Config.Dialect", func(c *join.Config) { c.Dialect = nil }},
			{"Config.Table", func(c *join.Config) { c.Table = " x" }},
			{"Config.WaitTopic", func(c *join.Config) { c.WaitTopic = strings.Repeat("w", 256) }},
			{"Config.WaitTopic", func(c *join.Config) { c.WaitTopic = "waits " }},
			{"Config.RecheckInterval", func(c *join.Config) { c.RecheckInterval = -time.Second }},
			{"Config.RecheckInterval", func(c *join.Config) { c.RecheckInterval = time.Microsecond }},
			{"Config.RecheckInterval", func(c *join.Config) { c.RecheckInterval = 11 * 365 * 24 * time.Hour }},
		} {
			config := good
			bad.change(&config)
			_, err := join.NewCoordinator(f.DB.DB, config, nil)
			f.RequireField(err, bad.field)
		}
		_, err := join.NewCoordinator(nil, good, nil)
		f.ErrorIs(err, base.ErrNilDB)
		_, err = join.NewPublisher(f.DB.DB, outbox.PublisherConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, nil, nil)
		f.RequireField(err, "coordinator")
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		_, err = f.Joins().Start(ctx, nil, join.StartParams{ExpectedSteps: 1})
		f.ErrorIs(err, context.Canceled)
		f.Zero(f.JoinCount())
	})
}

// The pages of steps follow the database's own order of ids, in which message ids grow.
func TestJoinStepsArePaged(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, want := f.StartWith(c, "s", 8)
		f.StartWith(c, "s", 4) // of another join
		var got []outbox.MessageID
		var after outbox.MessageID
		for _, size := range []int{3, 3, 2, 0} {
			page, err := c.Steps(f.Context(), nil, id, after, 3)
			f.NoError(err)
			f.Len(page, size)
			for _, s := range page {
				got = append(got, s.MessageID)
				after = s.MessageID
			}
		}
		f.ElementsMatch(want, got, "no gap, no repeat")
		if f.Lacks(suite.OrdersUUIDs) == "" {
			f.Equal(want, got)
		}
		none, err := c.Steps(f.Context(), nil, join.ID{1}, outbox.MessageID{}, 3)
		f.NoError(err)
		f.Empty(none)

		// Ids of other makers are in any order.
		by := f.Start(c, join.StartParams{Open: true})
		var random []outbox.MessageID
		for range 20 {
			random = append(random, outbox.MessageID(base.NewOwnerToken()))
		}
		f.NoError(c.AttachByReport(f.Context(), nil, by, random...))
		got, after = nil, outbox.MessageID{}
		for {
			page, err := c.Steps(f.Context(), nil, by, after, 7)
			f.NoError(err)
			for _, s := range page {
				f.True(s.ByReport)
				f.False(slices.Contains(got, s.MessageID), "seen before")
				got = append(got, s.MessageID)
				after = s.MessageID
			}
			if len(page) == 0 {
				break
			}
		}
		f.ElementsMatch(random, got)
	})
}
