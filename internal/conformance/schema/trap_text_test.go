package schema_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// The traps of texts: what one database keeps, another changes, compares as equal or refuses.

// Values of headers that JSON, a code page or a C string would spoil.
var nastyTexts = []string{
	"", " ", " leading and trailing ", "\ttabs\nand\r\nlines\x00and NUL\x00", `"quotes" and \backslashes\`, `{"json":[1,null]}`, `\u0000`, `\x00`,
	"<script>&amp;</script>", "'; DROP TABLE outbox; --", "🙂👨‍👩‍👧 emoji", "é é", "ıİ Turkish", "日本語", "\u2028\u2029 separators", "\ufeffbom", "\uffff",
	"\U0010FFFF", "\x01\x02\x1f\x7f", "$1 ?1 @p1 %s {}", strings.Repeat("long ", 20_000),
}

func TestTrap_MetadataOfAnyText(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var messages []outbox.Message
		all := map[string]string{}
		longer, unescaped := f.Lacks(suite.LongerJSONTexts) == "", f.Lacks(suite.UnescapesJSON) == ""
		for i, text := range nastyTexts {
			if len(text) > 100 && !longer || strings.Contains(text, "\x00") && !unescaped { // headers with a NUL travel as text
				continue
			}
			all[fmt.Sprint(i)] = text
			if len(text) < 100 {
				all["key "+text] = fmt.Sprint(i)
			}
			messages = append(messages, outbox.Message{Topic: "orders", Headers: map[string]string{"value": text}})
		}
		messages = append(messages, outbox.Message{Topic: "orders", Headers: all},
			outbox.Message{Topic: "orders", Headers: nil}, outbox.Message{Topic: "orders", Headers: map[string]string{}}, outbox.Message{Topic: "orders", Headers: map[string]string{"": ""}})
		ids := f.Enqueue(messages...)
		claimed := f.Claim("orders")
		f.Len(claimed, len(messages))
		records, err := f.Outbox.Get(f.Context(), ids...)
		f.NoError(err)
		for i, m := range messages {
			f.Equal(len(m.Headers), len(claimed[i].Headers), "headers %q", m.Headers)
			for key, value := range m.Headers {
				f.Equal(value, claimed[i].Headers[key], "header %q", key)
				f.Equal(value, records[i].Headers[key], "header %q", key)
			}
			f.NoError(claimed[i].Malformed)
		}
	})
}

func TestTrap_PayloadsOfAnyBytes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		payloads := [][]byte{nil, {}, {0}, {0, 0, 0}, every, []byte("\xff\xfe"), []byte(`\x00`), []byte("trailing \x00"), []byte("🙂"), nil}
		var messages []outbox.Message
		for _, p := range payloads {
			messages = append(messages, outbox.Message{Topic: "orders", Payload: p})
		}
		f.Enqueue(messages...)
		claimed := f.Claim("orders")
		f.Len(claimed, len(payloads))
		for i, p := range payloads {
			f.Equal(string(p), string(claimed[i].Payload))
		}
	})
}

func TestTrap_UUIDsAndIDsOfAnyText(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		texts := []string{"", "1", "not a uuid", "1", "É", "é", " spaces ", "日本", "🙂"}
		var messages []outbox.Message
		for _, text := range texts {
			messages = append(messages, outbox.Message{Topic: "orders", UUID: text, CorrelationID: text, StreamKey: strings.TrimSpace(text)})
		}
		f.Enqueue(messages...)
		for i, c := range f.Claim("orders") {
			f.Equal(texts[i], c.UUID, "free and not unique")
			f.Equal(texts[i], c.CorrelationID)
			f.Equal(strings.TrimSpace(texts[i]), c.StreamKey)
		}
	})
}

func TestTrap_QuotesInEveryText(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.UnescapesJSON)
		for _, text := range []string{`"`, `\`, `a"b\c`, "line\nline", "\x01", `\u0041`, "'", "\u2028", "<&>", `{"a":1}`, "\u200b", "\u200bab"} {
			f.Clear()
			if strings.TrimFunc(text, unicode.IsSpace) != text {
				continue
			}
			f.Enqueue(outbox.Message{Topic: text, UUID: text, CorrelationID: text, StreamKey: text, Headers: map[string]string{text: text}})
			claimed := f.Claim(text)
			f.Len(claimed, 1, "%q", text)
			c := claimed[0]
			f.Equal([]string{text, text, text, text, text}, []string{c.Topic, c.UUID, c.CorrelationID, c.StreamKey, c.Headers[text]})
		}
	})
}

// Topics are compared by code point, whatever the collation of the database.
func TestTrap_TopicsThatDifferAlittle(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		topics := []string{
			"orders", "Orders", "ORDERS", "ördérs", "o\u0301rders", "ó" + "rders", "ılk", "ilk", "Ilk", "İlk", "straße", "strasse", "ＡＢ", "AB",
			"🙂", "🙃", "a b", "a  b", "a\u00a0b", "a-b", "a.b", "a%b", "a_b", "日本", "日本語", "ǅ", "ǆ",
		}
		for _, topic := range topics {
			f.EnqueueN(topic, 1)
		}
		known, err := f.Outbox.Topics(f.Context())
		f.NoError(err)
		f.Len(known, len(topics))
		for _, topic := range topics {
			claimed := f.Claim(topic)
			f.Len(claimed, 1, "%q", topic)
			f.Equal(topic, claimed[0].Topic)
		}
		// The same where the filter of a requeue compares.
		f.ExecStates("UPDATE {outbox_state} SET {owner_token} = NULL, {status} = 3, {processed_at} = {now}, {worker_id} = (SELECT MAX({worker_id}) FROM {outbox_worker})")
		n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{Topic: "ORDERS"})
		f.NoError(err)
		f.Equal(1, n)
		f.Len(f.Claim("ORDERS"), 1)
	})
}

func TestTrap_WhiteSpaceAtTheEndsOfATopic(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, topic := range []string{" ", "orders ", " orders", "orders\t", "orders\n", "\u00a0orders", "orders\u2003", "orders\u3000"} {
			_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: topic})
			f.RequireField(err, "Topic")
			_, err = f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas(topic)})
			f.RequireField(err, "ClaimParams.Topics")
		}
		f.Equal(0, f.Count())
	})
}

// More rows than a statement may touch, and more values than a statement may have parameters.
func TestTrap_MoreThanOneStatementCanTake(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		messages := make([]outbox.Message, 2200)
		for i := range messages {
			messages[i] = outbox.Message{
				UUID: fmt.Sprint(i), Topic: "orders", Payload: fmt.Appendf(nil, "payload %d", i), CorrelationID: fmt.Sprintf("c %d", i),
				Headers: map[string]string{"a": fmt.Sprint(i), "b": "2", "c": "3"}, StreamKey: fmt.Sprintf("s %d", i),
			}
		}
		ids := f.Enqueue(messages...)
		var claimed []outbox.Claimed
		for range 3 {
			claimed = append(claimed, f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 1000})...)
		}
		f.Len(claimed, len(messages))
		slices.SortFunc(claimed, func(a, b outbox.Claimed) int { return cmp.Compare(a.Receipt.Seq, b.Receipt.Seq) }) // streams have no order among them
		for i, c := range claimed {
			f.Equal(ids[i], c.ID)
			f.Equal(messages[i].UUID, c.UUID)
			f.Equal(string(messages[i].Payload), string(c.Payload))
			f.Equal(messages[i].CorrelationID, c.CorrelationID)
			f.Equal(messages[i].Headers, c.Headers)
		}
		receipts := make([]outbox.Receipt, len(claimed))
		for i := range claimed {
			receipts[i] = claimed[i].Receipt
		}
		refused, err := f.Outbox.Renew(f.Context(), 1e9, receipts...)
		f.NoError(err)
		f.Empty(refused)
		f.Empty(f.Settle(suite.Settled(outbox.Ack, claimed...)...))
		f.Len(f.Rows("{status} = 2"), len(messages))
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past}")
		n, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(len(messages), n)
	})
}

// A claim of many topics at once, more than a list of parameters could name.
func TestTrap_ManyTopics(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const topics = 1500
		var names []string
		var messages []outbox.Message
		for i := range topics {
			names = append(names, fmt.Sprintf("topic %04d", i))
			messages = append(messages, outbox.Message{Topic: names[i]})
		}
		f.Enqueue(messages...)
		f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas(names...), Limit: 1000}), 1000)
		f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas(names...), Limit: 1000}), 500)
	})
}

// One row whose headers somebody has spoiled by hand does not hold up the others.
func TestTrap_ARowThatCannotBeRead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Enqueue(outbox.Message{Topic: "orders"}, outbox.Message{Topic: "orders", Headers: map[string]string{"k": "v"}}, outbox.Message{Topic: "orders"})
		f.Exec("UPDATE {outbox} SET {headers} = 'no json' WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", ids[1])
		claimed := f.Claim("orders")
		f.Equal(ids, suite.MessageIDs(claimed))
		f.NoError(claimed[0].Malformed)
		f.Error(claimed[1].Malformed)
		f.NoError(claimed[2].Malformed)
		_, err := f.Outbox.Get(f.Context(), ids...)
		f.NoError(err)
	})
}
