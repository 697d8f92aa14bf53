package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The procedures are for others, too: here they are called by SQL, without the library.
func TestOBX106_ProceduresCanBeCalledDirectly(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.Procedures)
		ids := f.EnqueueN("orders", 5)
		owner := base.NewOwnerToken()
		claimed := f.Call("claim", `{"owner":"`+owner.String()+`","lease_ms":60000,"limit":4,"give_back":0,"worker":"w","topics":[{"key":`+fmt.Sprint(testdb.TopicKey("orders"))+`,"quota":10}]}`)
		f.Len(claimed, 4)
		for _, id := range ids[:4] {
			r := f.Row(id)
			f.Equal(int(outbox.InProgress), r.Status)
			f.Equal(owner, r.Owner)
			f.Contains(claimed, strconv.FormatInt(int64(r.Seq), 10))
		}
		seq := func(i int) string { return "[" + strconv.FormatInt(int64(f.Row(ids[i]).Seq), 10) + ", 999999]" }
		refused := []string{"999999"}

		f.Equal(refused, f.Call("ack", owner.String(), seq(0)))
		f.Equal(int(outbox.Done), f.Row(ids[0]).Status)
		f.True(f.Row(ids[0]).HasProcessedBy)

		before := f.Now()
		f.Equal(refused, f.Call("abandon", owner.String(), seq(1), "try again"))
		r := f.Row(ids[1])
		f.Equal(int(outbox.Ready), r.Status)
		f.Equal(1, r.Retries)
		f.Equal("try again", r.LastError)
		f.Between(before.Add(time.Second), f.Now().Add(time.Second), r.NextAttempt)

		f.Equal(refused, f.Call("fail", owner.String(), seq(2), "never again"))
		f.Equal(int(outbox.Failed), f.Row(ids[2]).Status)
		f.Equal("never again", f.Row(ids[2]).LastError)

		f.ExpireLeases()
		f.Equal([]string{"1"}, f.Call("reap", `{"limit":100}`))
		f.Equal(int(outbox.Ready), f.Row(ids[3]).Status)

		// A token that holds nothing changes nothing.
		f.Len(f.Call("ack", owner.String(), seq(4)), 2)
		f.Equal(int(outbox.Ready), f.Row(ids[4]).Status)
	})
}

func TestOBX106_AnErrorWithAnyTextReachesTheRow(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.Procedures, suite.UnescapesJSON)
		for _, text := range []string{"a \"quoted\"\nand \\ back-slashed\ttext", "🙂 é \u2028", "]} '", "", strings.Repeat("long ", 1000)} {
			c := f.ClaimOne("orders")
			seq, err := json.Marshal([]outbox.WorkItemID{c.Receipt.Seq})
			f.NoError(err)
			f.Empty(f.Call("fail", c.Receipt.Owner.String(), string(seq), text))
			got := f.Row(c.ID).LastError
			f.True(strings.HasPrefix(text, got) && len(got) >= min(len(text), 3900), "%q became %q", text, got)
		}
	})
}

func TestOBX114_ACallIsOneRoundTrip(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.Procedures)
		log := &faults.Log{}
		pool := faults.Open(t, f.DB, log.Hooks())
		o := f.NewOutbox(pool)
		one := func(name string, call func() error) {
			log.Take()
			f.NoError(call(), name)
			f.Len(log.Take(), 1, name)
		}
		messages := make([]outbox.Message, 100)
		for i := range messages {
			messages[i] = outbox.Message{Topic: "orders", Payload: []byte("x")}
		}
		one("enqueue", func() error { _, err := o.Enqueue(f.Context(), pool, messages...); return err })
		var claimed []outbox.Claimed
		one("claim", func() (err error) {
			claimed, err = o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("other", "orders", "another")})
			return err
		})
		f.Len(claimed, 100)
		one("renew", func() error {
			_, err := o.Renew(f.Context(), time.Hour, claimed[0].Receipt, claimed[1].Receipt)
			return err
		})
		one("settle", func() error {
			all := append(suite.Settled(outbox.Ack, claimed[:50]...), suite.Settled(outbox.Retry, claimed[50:]...)...)
			all[53].Err = errors.New("kept")
			refused, err := o.Settle(f.Context(), pool, all)
			return errors.Join(err, map[bool]error{true: errors.New("refused some")}[len(refused) > 0])
		})
	})
}

// A uuid in JSON is the same for every database.
func TestTokensAreTextInJSON(t *testing.T) {
	token := base.NewOwnerToken()
	text, err := json.Marshal(token)
	if err != nil || string(text) != `"`+uuid.UUID(token).String()+`"` {
		t.Fatalf("%s, %v", text, err)
	}
	if _, err := base.ParseMessageID("no uuid"); err == nil {
		t.Fatal("that is no uuid")
	}
}
