package conformance

import (
	"database/sql"
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
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The procedures are for others, too: here they are called by SQL, without the library.
func TestOBX106_ProceduresCanBeCalledDirectly(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(procedures)
		ids := f.enqueueN("orders", 5)
		owner := base.NewOwnerToken()
		claimed := f.call("claim", `{"owner":"`+owner.String()+`","lease_ms":60000,"limit":4,"give_back":0,"worker":"w","topics":[{"key":`+fmt.Sprint(testdb.TopicKey("orders"))+`,"quota":10}]}`)
		f.Len(claimed, 4)
		for _, id := range ids[:4] {
			r := f.row(id)
			f.Equal(int(outbox.InProgress), r.status)
			f.Equal(owner, r.owner)
			f.Contains(claimed, strconv.FormatInt(int64(r.seq), 10))
		}
		seq := func(i int) string { return "[" + strconv.FormatInt(int64(f.row(ids[i]).seq), 10) + ", 999999]" }
		refused := []string{"999999"}

		f.Equal(refused, f.call("ack", owner.String(), seq(0)))
		f.Equal(int(outbox.Done), f.row(ids[0]).status)
		f.True(f.row(ids[0]).hasProcessedBy)

		before := f.now()
		f.Equal(refused, f.call("abandon", owner.String(), seq(1), "try again"))
		r := f.row(ids[1])
		f.Equal(int(outbox.Ready), r.status)
		f.Equal(1, r.retries)
		f.Equal("try again", r.lastError)
		f.between(before.Add(time.Second), f.now().Add(time.Second), r.nextAttempt)

		f.Equal(refused, f.call("fail", owner.String(), seq(2), "never again"))
		f.Equal(int(outbox.Failed), f.row(ids[2]).status)
		f.Equal("never again", f.row(ids[2]).lastError)

		f.expireLeases()
		f.Equal([]string{"1"}, f.call("reap", `{"limit":100}`))
		f.Equal(int(outbox.Ready), f.row(ids[3]).status)

		// A token that holds nothing changes nothing.
		f.Len(f.call("ack", owner.String(), seq(4)), 2)
		f.Equal(int(outbox.Ready), f.row(ids[4]).status)
	})
}

// call calls a procedure and returns the first column of its result.
func (f *fixture) call(name string, args ...any) (first []string) {
	f.t.Helper()
	statement := "SELECT * FROM " + f.object("outbox_"+name) + "("
	if f.db.Name == testdb.SQLServer {
		statement = "EXEC " + f.object("Outbox_"+name) + " "
	}
	for i := range args {
		if i > 0 {
			statement += ", "
		}
		if f.db.Name == testdb.SQLServer {
			statement += "@p" + strconv.Itoa(i+1)
		} else {
			statement += "$" + strconv.Itoa(i+1)
		}
	}
	if f.db.Name == testdb.Postgres {
		statement += ")"
	}
	rows, err := f.db.QueryContext(f.ctx(), statement, args...)
	f.NoError(err, statement)
	defer func() { f.NoError(rows.Close()) }()
	columns, err := rows.Columns()
	f.NoError(err)
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.RawBytes)
		}
		f.NoError(rows.Scan(values...))
		value, ok := values[0].(*sql.RawBytes)
		f.True(ok)
		first = append(first, string(*value))
	}
	f.NoError(rows.Err())
	return first
}

func TestOBX106_AnErrorWithAnyTextReachesTheRow(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(procedures, unescapesJSON)
		for _, text := range []string{"a \"quoted\"\nand \\ back-slashed\ttext", "🙂 é \u2028", "]} '", "", strings.Repeat("long ", 1000)} {
			c := f.claimOne("orders")
			seq, err := json.Marshal([]outbox.WorkItemID{c.Receipt.Seq})
			f.NoError(err)
			f.Empty(f.call("fail", c.Receipt.Owner.String(), string(seq), text))
			got := f.row(c.ID).lastError
			f.True(strings.HasPrefix(text, got) && len(got) >= min(len(text), 3900), "%q became %q", text, got)
		}
	})
}

func TestOBX114_ACallIsOneRoundTrip(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(procedures)
		log := &faults.Log{}
		pool := faults.Open(t, f.db, log.Hooks())
		o := f.newOutbox(pool)
		one := func(name string, call func() error) {
			log.Take()
			f.NoError(call(), name)
			f.Len(log.Take(), 1, name)
		}
		messages := make([]outbox.Message, 100)
		for i := range messages {
			messages[i] = outbox.Message{Topic: "orders", Payload: []byte("x")}
		}
		one("enqueue", func() error { _, err := o.Enqueue(f.ctx(), pool, messages...); return err })
		var claimed []outbox.Claimed
		one("claim", func() (err error) {
			claimed, err = o.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("other", "orders", "another")})
			return err
		})
		f.Len(claimed, 100)
		one("renew", func() error {
			_, err := o.Renew(f.ctx(), time.Hour, claimed[0].Receipt, claimed[1].Receipt)
			return err
		})
		one("settle", func() error {
			all := append(settled(outbox.Ack, claimed[:50]...), settled(outbox.Retry, claimed[50:]...)...)
			all[53].Err = errors.New("kept")
			refused, err := o.Settle(f.ctx(), pool, all)
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
