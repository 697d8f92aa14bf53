package cli

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
)

var update = flag.Bool("update", false, "write testdata/session.txt")

// What differs from run to run, in the order in which it is replaced.
var changing = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<id>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z`), "<time>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`\b\d+(\.\d+)?m?s\b( *)`), "<span>  "},
	{regexp.MustCompile(`"age_seconds":[0-9.]+`), `"age_seconds":<span>`},
	{regexp.MustCompile(`--after \d+-\d+-\d+`), "--after <mark>"},
	{regexp.MustCompile(` by \S+:\d+`), " by <worker>"},
	{regexp.MustCompile(`(?m)^\S+:\d+ `), "<worker> "},
	{regexp.MustCompile(`(ended by +|"ended_by":"|"worker":")[^"\s]+`), "$1<worker>"},
	{regexp.MustCompile(`\bgo1\.[\w.]+`), "<go>"},
	{regexp.MustCompile(` in \S+\.db\b`), " in <file>"},
	{regexp.MustCompile(`(?m) +$`), ""},
	{regexp.MustCompile(`(\S) {3,}`), "$1  "}, // columns are as wide as what changes
}

// A session with every command: what it prints is kept in testdata/session.txt. go test -update writes that again.
func TestSession(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		var session strings.Builder
		run := func(line string, args ...string) {
			code, out, errOut := f.run(args...)
			session.WriteString("$ outbox " + line + "\n" + out + errOut)
			if code != exitOK {
				session.WriteString("[exit " + string(rune('0'+code)) + "]\n")
			}
			session.WriteString("\n")
		}
		simple := func(line string) { run(line, strings.Fields(line)...) }
		prepare(f)
		f.streams.Env = func(name string) string { return map[string]string{"OUTBOX_BY": "dora"}[name] }
		for _, line := range strings.Split(strings.TrimSpace(commands), "\n") {
			simple(line)
		}
		failed := f.fail("bills", "no such customer")
		run("dead requeue ID", "dead", "requeue", failed[0].String())
		run("message show ID", "message", "show", failed[0].String())
		run("message show ID -o json", "message", "show", failed[0].String(), "-o", "json", "--payload", "--headers")

		run("dead edit ID", "dead", "edit", failed[0].String(), "--payload", "x")
		again := f.fail("bills", "no such customer")
		run("dead edit ID --payload x", "dead", "edit", again[0].String(), "--payload", "x", "--header", "a=", "--header", "c=3", "--by", "alice")
		run("dead edit ID", "dead", "edit", again[0].String())

		text := session.String()
		for _, c := range changing {
			text = c.pattern.ReplaceAllString(text, c.by)
		}
		file := filepath.Join("testdata", "session.txt")
		if *update {
			f.NoError(os.MkdirAll("testdata", 0o755))
			f.NoError(os.WriteFile(file, []byte(text), 0o600))
		}
		want, err := os.ReadFile(file)
		f.NoError(err)
		require.Equal(t, string(want), text)
	})
}

// The ids in the lines below are not in the database, or were chosen by prepare.
const commands = `
--help
migrate status
migrate status -o json
migrate up
check
check -o json
topics
topics -o json
message list
message list --topic orders --state failed,done -o json
message list --limit 2
message show nobody
dead list --topic orders
dead list --topic orders -o json
dead errors
dead errors -o json
dead requeue
dead requeue --topic orders --all
dead requeue --topic orders --dry-run
dead requeue --topic orders --dry-run -o json
dead requeue --topic orders --yes
dead discard --error shipped --yes
stream list
stream list -o json
stream resume parcels s1
stream resume parcels s1
dead requeue --all --yes
join list
join list --pending --group tenant
join list --pending -o json
join list --group tenant
join list --group tenant -o json
join show 0198f0c4-5a0b-7000-8000-000000000001
join show 0198f0c4-5a0b-7000-8000-000000000001 -o json
join steps 0198f0c4-5a0b-7000-8000-000000000001
join steps 0198f0c4-5a0b-7000-8000-000000000001 -o json
join seal 0198f0c4-5a0b-7000-8000-000000000002 --by carol
join cancel 0198f0c4-5a0b-7000-8000-000000000001 --yes
join cancel 0198f0c4-5a0b-7000-8000-000000000001 --yes
join purge --older-than 30d --yes
inbox list
inbox list -o json
inbox show shop m-1 mail
inbox show shop m-1 mail -o json
inbox show shop m-2 mail
inbox requeue --all --yes
inbox purge --older-than 7d --yes
log groups
log groups -o json
log lag --max 1h
log lag --max 1h -o json
log skip mail events --yes
log dead list mail
log dead list mail -o json
log dead requeue mail --all
log dead requeue mail
log dead discard mail 7 --yes
log forget mail --yes
log groups
purge --older-than 0m --yes
purge --older-than 30d --failed --dry-run
purge --older-than 30d --dry-run
purge
doctor
doctor -o json
version
version -o json
message publish orders --payload hello --header tenant=acme
message publish orders --payload hello --delay 1h -o json
frobnicate
dead list --since yesterday
message list --output xml
topics --dry-run
topic pause bills --by alice --reason closed
topic pause
topic paused
topic paused -o json
topics
topic resume bills --by bob
topic resume bills
message delay
message delay --topic bills
message delay --topic bills --for 1h --dry-run
message delay --topic bills --to now --yes --by alice
message delay --all --to tomorrow --yes
message cancel --topic steps
message cancel --topic steps --yes --by alice
message cancel --topic steps --yes
workers
audit list
audit list --limit 1
audit list --limit 1 -o json
stores list
`

func prepare(f *fixture) {
	ctx := f.T.Context()
	dialect := testoutbox.Dialect(f.DB.Name)
	f.publish(outbox.Message{UUID: "order-1", Topic: "orders", Payload: []byte(`{"id": 1}`), Headers: map[string]string{"tenant": "acme"}})
	f.publish(outbox.Message{UUID: "order-2", Topic: "orders"})
	f.fail("orders", "no such customer")
	f.publish(outbox.Message{UUID: "parcel-1", Topic: "parcels", StreamKey: "s1"})
	f.publish(outbox.Message{UUID: "parcel-2", Topic: "parcels", StreamKey: "s1"})
	f.fail("parcels", "not shipped")
	f.publish(outbox.Message{UUID: "bill-1", Topic: "bills", Payload: []byte("\xff\x00"), Headers: map[string]string{"b": "2", "a": "1"}})

	joins, err := join.NewCoordinator(f.DB.DB, join.Config{Dialect: dialect}, nil)
	f.NoError(err)
	for name, params := range map[string]join.StartParams{
		"0198f0c4-5a0b-7000-8000-000000000001": {ExpectedSteps: 2, GroupingKey: "tenant"}, "0198f0c4-5a0b-7000-8000-000000000002": {Open: true},
	} {
		params.ID, err = join.ParseID(name)
		f.NoError(err)
		_, err = joins.Start(ctx, nil, params)
		f.NoError(err)
	}
	first, err := join.ParseID("0198f0c4-5a0b-7000-8000-000000000001")
	f.NoError(err)
	_, err = joins.Enqueue(ctx, nil, first, outbox.Message{UUID: "step", Topic: "steps"})
	f.NoError(err)

	f.NoError(inbox.Migrate(ctx, f.DB.DB, inbox.Config{Dialect: dialect}))
	in, err := inbox.New(f.DB.DB, inbox.Config{Dialect: dialect}, nil)
	f.NoError(err)
	_, err = in.Enqueue(ctx, nil, inbox.Received{Key: inbox.Key{Source: "shop", MessageID: "m-1", Handler: "mail"}, Message: outbox.Message{UUID: "m-1"}})
	f.NoError(err)

	config := f.Subscriber()
	config.ConsumerGroup = "mail"
	s, err := outbox.NewSubscriber(f.DB.DB, config, nil)
	f.NoError(err)
	f.NoError(s.SubscribeInitialize("events"))
	f.NoError(s.Close())
}
