package conformance

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
	"github.com/incursa/watermill-outbox/join"
)

func TestJOIN001_005_006_OBX074_075_076_AStartedJoinIsPendingAndHasCountedNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		before := f.now()
		id, err := c.Start(f.ctx(), f.db, join.StartParams{GroupingKey: "tenant 7", ExpectedSteps: 3, Metadata: "phase 1"})
		f.NoError(err)
		after := f.now()
		another := f.start(c, join.StartParams{ExpectedSteps: 3})
		f.NotEqual(id, another)
		f.Equal(2, f.joinCount())

		r := f.joinRow(id)
		f.Equal([]int{0, 0, 0, 0}, []int{r.completed, r.failed, r.status, r.members})
		f.Equal("tenant 7", r.key.String)
		f.Equal("phase 1", r.metadata.String)
		f.Equal(int64(3), r.expected.Int64)
		f.between(before, after, r.created)
		f.Equal(r.created, r.updated, "one moment, of the database's clock")

		j := f.join(c, id)
		f.sameTime(r.created, j.CreatedAt)
		f.sameTime(r.updated, j.LastUpdatedAt)
		j.CreatedAt, j.LastUpdatedAt = time.Time{}, time.Time{}
		f.Equal(join.Join{ID: id, GroupingKey: "tenant 7", ExpectedSteps: 3, Metadata: "phase 1"}, j)

		_, err = c.Get(f.ctx(), nil, join.ID{1})
		f.ErrorIs(err, join.ErrNotFound)
	})
}

func TestJOIN002_AJoinOfNoStepsIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
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
				id, err := c.Start(f.ctx(), nil, params)
				f.requireField(err, field)
				f.Equal(join.ID{}, id)
			}
		}
		f.Zero(f.joinCount())
		most := f.start(c, join.StartParams{ExpectedSteps: 1<<31 - 1, Quorum: 1<<31 - 1})
		f.Equal(1<<31-1, f.join(c, most).ExpectedSteps)
	})
}

func TestJOIN003_OBX089_AJoinBelongsToTheGroupOfItsKey(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		none := f.start(c, join.StartParams{ExpectedSteps: 1})
		f.False(f.joinRow(none).key.Valid, "no key is NULL")
		f.False(f.joinRow(none).metadata.Valid)
		f.Empty(f.join(c, none).GroupingKey)

		keys := []string{"tenant", "Tenant", "ténant", "İ", "🙂", "a b", "%", "' OR 1 = 1", strings.Repeat("k", 255)}
		if f.lacks(unescapesJSON) == "" {
			keys = append(keys, `"\`)
		}
		for _, key := range keys {
			id := f.start(c, join.StartParams{GroupingKey: key, ExpectedSteps: 1})
			f.Equal(key, f.joinRow(id).key.String)
			found, err := c.ByGroup(f.ctx(), nil, key, join.ID{}, 10)
			f.NoError(err)
			f.Len(found, 1, "no other key is the same as %q", key)
			f.Equal(id, found[0].ID)
			f.Equal(key, found[0].GroupingKey)
		}
		empty, err := c.ByGroup(f.ctx(), nil, "nobody", join.ID{}, 10)
		f.NoError(err)
		f.Empty(empty)
	})
}

func TestJOIN004_AGroupingKeyThatCannotBeComparedIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		for _, key := range []string{
			strings.Repeat("k", 256), strings.Repeat("🙂", 128), " k", "k ", "k\n", " ", "a\x00b", "\xff",
		} {
			_, err := c.Start(f.ctx(), nil, join.StartParams{GroupingKey: key, ExpectedSteps: 1})
			f.requireField(err, "StartParams.GroupingKey")
		}
		f.Zero(f.joinCount())
		id := f.start(c, join.StartParams{GroupingKey: strings.Repeat("🙂", 127), ExpectedSteps: 1})
		f.Equal(strings.Repeat("🙂", 127), f.joinRow(id).key.String)
	})
}

func TestJoinMetadataComesBackAsItWas(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		texts := []string{" ", "Grüße 🙂", "<&>", "{a: [1, 2]}"}
		if f.lacks(unescapesJSON) == "" {
			texts = append(texts, "{\"a\": [1, 2]}\n", `\`, "/")
		}
		if f.lacks(longerJSONTexts) == "" {
			texts = append(texts, strings.Repeat("long ", 20_000))
		}
		for _, text := range texts {
			id := f.start(c, join.StartParams{ExpectedSteps: 1, Metadata: text})
			f.Equal(text, f.join(c, id).Metadata)
		}
	})
}

func TestJoinStartedInTheCallersTransactionLivesAndDiesWithIt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		for _, commit := range []bool{false, true} {
			tx, err := f.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			id, err := c.Start(f.ctx(), tx, join.StartParams{ExpectedSteps: 1})
			f.NoError(err)
			j, err := c.Get(f.ctx(), tx, id)
			f.NoError(err)
			f.Equal(id, j.ID)
			if commit {
				f.NoError(tx.Commit())
				f.Equal(1, f.joinCount())
				continue
			}
			f.NoError(tx.Rollback())
			f.Zero(f.joinCount())
			_, err = c.Get(f.ctx(), nil, id)
			f.ErrorIs(err, join.ErrNotFound)
		}
	})
}

// The first thing that a connection does with joins is all of it: start, steps, and the wait.
func TestJoinIsStartedSentAndWaitedForInOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		for _, failure := range []error{errors.New("not this time"), nil} {
			var id join.ID
			err := outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) (err error) {
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
				f.Zero(f.joinCount())
				f.Zero(f.count())
				continue
			}
			f.Empty(f.claim(join.DefaultWaitTopic))
			f.Empty(f.settle(settled(outbox.Ack, f.claim("s")...)...))
			f.stands(c, id, join.Completed, 2, 0)
			f.Len(f.claim(join.DefaultWaitTopic), 1)
		}
	})
}

func TestJOIN082_TheGroupingKeyHasAnIndex(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(indexNames)
		f.Contains(f.names("index"), f.either("outbox_join_group", "IX_OutboxJoin_GroupingKey"))
	})
}

// A page begins after the last join of the page before, whatever the times of the joins say.
func TestJOIN082_TheJoinsOfAGroupArePaged(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		var want []join.ID
		for i := range 8 {
			id := f.start(c, join.StartParams{GroupingKey: "g", ExpectedSteps: 1})
			want = append(want, id)
			f.start(c, join.StartParams{GroupingKey: "G", ExpectedSteps: 1})
			// Whoever was given the earlier id may have written later.
			f.exec("UPDATE {join} SET {created} = %s WHERE {join_id} = '%s'", []string{"{past}", "{now}", "{future}"}[i*5%3], id)
		}
		var got []join.ID
		var after join.ID
		for _, size := range []int{3, 3, 2, 0} {
			page, err := c.ByGroup(f.ctx(), nil, "g", after, 3)
			f.NoError(err)
			f.Len(page, size)
			for _, j := range page {
				got = append(got, j.ID)
				after = j.ID
			}
		}
		f.ElementsMatch(want, got, "no gap, no repeat")
		if f.lacks(ordersUUIDs) == "" {
			f.Equal(want, got, "in order of their start")
		}
	})
}

func TestJoinReadsRefuseWhatCannotBeMeant(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 1})
		for _, limit := range []int{-1, 0, 1001} {
			_, err := c.ByGroup(f.ctx(), nil, "g", join.ID{}, limit)
			f.requireField(err, "limit")
			_, err = c.Steps(f.ctx(), nil, id, outbox.MessageID{}, limit)
			f.requireField(err, "limit")
		}
		_, err := c.ByGroup(f.ctx(), nil, "", join.ID{}, 1)
		f.requireField(err, "key")
		_, err = c.Get(f.ctx(), nil, join.ID{})
		f.requireField(err, "join id")
		_, err = c.Steps(f.ctx(), nil, join.ID{}, outbox.MessageID{}, 1)
		f.requireField(err, "join id")
		_, err = c.Get(f.ctx(), (*sql.Tx)(nil), id)
		f.ErrorIs(err, base.ErrNilDB, "a handle that is nil by mistake is not the pool")
		_, err = c.Purge(f.ctx(), -1)
		f.requireField(err, "olderThan")
	})
}

func TestJoinCoordinatorIsCheckedWhenItIsMade(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		good := join.Config{Dialect: f.config.Dialect, Schema: f.config.Schema}
		for _, bad := range []struct {
			field  string
			change func(*join.Config)
		}{
			{"Dialect", func(c *join.Config) { c.Dialect = nil }},
			{"Table", func(c *join.Config) { c.Table = " x" }},
			{"Config.WaitTopic", func(c *join.Config) { c.WaitTopic = strings.Repeat("w", 256) }},
			{"Config.WaitTopic", func(c *join.Config) { c.WaitTopic = "waits " }},
			{"Config.RecheckInterval", func(c *join.Config) { c.RecheckInterval = -time.Second }},
			{"Config.RecheckInterval", func(c *join.Config) { c.RecheckInterval = time.Microsecond }},
			{"Config.RecheckInterval", func(c *join.Config) { c.RecheckInterval = 11 * 365 * 24 * time.Hour }},
		} {
			config := good
			bad.change(&config)
			_, err := join.NewCoordinator(f.db.DB, config, nil)
			f.requireField(err, bad.field)
		}
		_, err := join.NewCoordinator(nil, good, nil)
		f.ErrorIs(err, base.ErrNilDB)
		_, err = join.NewPublisher(f.db.DB, outbox.PublisherConfig{Dialect: f.config.Dialect, Schema: f.config.Schema}, nil, nil)
		f.requireField(err, "coordinator")
		ctx, cancel := context.WithCancel(f.ctx())
		cancel()
		_, err = f.joins().Start(ctx, nil, join.StartParams{ExpectedSteps: 1})
		f.ErrorIs(err, context.Canceled)
		f.Zero(f.joinCount())
	})
}

// The pages of steps follow the database's own order of ids, in which message ids grow.
func TestJoinStepsArePaged(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, want := f.startWith(c, "s", 8)
		f.startWith(c, "s", 4) // of another join
		var got []outbox.MessageID
		var after outbox.MessageID
		for _, size := range []int{3, 3, 2, 0} {
			page, err := c.Steps(f.ctx(), nil, id, after, 3)
			f.NoError(err)
			f.Len(page, size)
			for _, s := range page {
				got = append(got, s.MessageID)
				after = s.MessageID
			}
		}
		f.ElementsMatch(want, got, "no gap, no repeat")
		if f.lacks(ordersUUIDs) == "" {
			f.Equal(want, got)
		}
		none, err := c.Steps(f.ctx(), nil, join.ID{1}, outbox.MessageID{}, 3)
		f.NoError(err)
		f.Empty(none)

		// Ids of other makers are in any order.
		by := f.start(c, join.StartParams{Open: true})
		var random []outbox.MessageID
		for range 20 {
			random = append(random, outbox.MessageID(base.NewOwnerToken()))
		}
		f.NoError(c.AttachByReport(f.ctx(), nil, by, random...))
		got, after = nil, outbox.MessageID{}
		for {
			page, err := c.Steps(f.ctx(), nil, by, after, 7)
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
