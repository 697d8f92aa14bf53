// Package examples_test runs the examples as their readers do.
package examples_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

// A story is what an example prints: all of its lines are in one or more threads, each of which is in order. What happens at
// the same time is in threads of its own.
type story [][]string

// stories are those that need nothing installed.
var stories = map[string]story{
	"quickstart": {{
		"rolled back unicorn: there are no unicorns",
		"ordered socks",
		"shipped socks",
	}},
	"existing-router": {{
		"ordered socks",
		"invoice for socks",
		"mailed the invoice for socks, correlation id order-1",
	}},
	"cqrs": {{
		"PlaceOrder socks: stored",
		"OrderPlaced socks: reserved",
		"OrderPlaced socks: the customer is told",
	}},
	"own-transaction": {{
		"ordered socks",
		"rolled back the same again: constraint failed: UNIQUE constraint failed: orders.item (2067)",
		"refused without a transaction: true",
		"shipped socks",
	}},
	"retries-and-dead-letters": {
		{"socks, attempt 1: the lorry is late", "socks, attempt 2: the lorry is late", "socks, attempt 3: shipped"},
		{"dead letter: unicorn: there are no unicorns", "requeued 1"},
		{"dead letter: unicorn: there are no unicorns", "unicorn, attempt 1: shipped"},
	},
	"exactly-once": {{
		"attempt 1 has taken one from the stock, and fails",
		"attempt 2 has taken one from the stock",
		"shipped socks",
		"9 of 10 are left",
	}},
	"ordered-streams": {
		{"socks: created", "socks: repriced to 12: a worker stops in the middle", "socks: repriced to 12", "socks: repriced to 9"},
		{"gloves: created", "gloves: repriced to 12", "gloves: repriced to 9"},
	},
	"fan-in": {
		{"extracted customers", "transform day 1: 3 of 3 extractions have completed"},
		{"extracted orders", "transform day 1: 3 of 3 extractions have completed"},
		{"extracted products", "transform day 1: 3 of 3 extractions have completed"},
	},
	"log": {
		{"ordered socks", "ordered gloves", "ordered scarf"},
		{"billing reads position 1: socks", "billing reads position 2: gloves", "billing reads position 3: scarf"},
		{"shipping reads position 1: socks", "shipping reads position 2: gloves", "shipping reads position 3: scarf"},
	},
	"event-sourcing": {{
		"account-1: moved 100, and has 100",
		"account-1: moved -30, and has 70",
		"refused -500: the account would be overdrawn",
		"account-1: moved 50, and has 120",
		"conflict: expected version 1, and it is version 3",
		"account-2: moved 7, and has 7",
		"balances: 70 in 1 account(s)",
		"balances: 127 in 2 account(s)",
		"balances_v2: 127 in 2 account(s)",
	}},
	"fanout": {
		{"published socks to orders.eu", "published socks to orders.us"},
		{"billing gets socks of orders.eu"}, {"billing gets socks of orders.us"},
		{"shipping gets socks of orders.eu"}, {"shipping gets socks of orders.us"},
	},
	"inbox-consumer": {{
		"the broker delivers payment-1",
		"  payment-1 is booked",
		"the broker delivers payment-1",
		"the broker delivers payment-2",
		"  payment-2 fails after its INSERT, and comes again",
		"  payment-2 is booked",
		"the broker delivers payment-1",
		"2 payments, 60 EUR",
	}},
	"multi-tenant": {
		{"shipped socks of acme"},
		{"shipped gloves of globex"},
		{
			`before initech signs up: stores: there is no store with this key; check the tenant, or wait until it is discovered: "initech"`,
			"shipped a stapler of initech",
		},
	},
}

// requireTold fails the test if a program did not print the story, ended with another exit code than 0, or complained.
func requireTold(t *testing.T, want story, got result) {
	t.Helper()
	require.Zero(t, got.code, "%s%s", got.out, got.errOut)
	require.Empty(t, got.errOut)
	lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
	require.Subset(t, slices.Concat(want...), lines, "a line that is not in the story")
	for _, thread := range want {
		told := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !slices.Contains(thread, line) })
		require.Equal(t, thread, told, got.out)
	}
}

func TestExamples(t *testing.T) {
	for name, want := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireTold(t, want, run(t, name))
		})
	}
}

func TestForwardToRabbitMQ(t *testing.T) {
	t.Parallel()
	url := testbroker.URL(t)
	requireTold(t, story{
		{"ordered socks", "ordered gloves", "ordered scarf"},
		{"shipped socks, which came by RabbitMQ"},
		{"shipped gloves, which came by RabbitMQ"},
		{"shipped scarf, which came by RabbitMQ"},
	}, run(t, "forward-to-rabbitmq", "-amqp", url))
}

func TestForwardToKafka(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation())
	require.NoError(t, err)
	defer cluster.Close()
	requireTold(t, story{
		{"ordered socks", "ordered gloves", "ordered scarf"},
		{"shipped socks of customer-1, offset 0", "shipped gloves of customer-1, offset 1", "shipped scarf of customer-1, offset 2"},
	}, run(t, "forward-to-kafka", "-brokers", strings.Join(cluster.ListenAddrs(), ",")))
}

func TestSQLServer(t *testing.T) {
	t.Parallel()
	script, err := outbox.MigrationSQL(outbox.MigrateConfig{Dialect: outbox.SQLServer{}})
	require.NoError(t, err)
	printed := run(t, "sqlserver", "-sql")
	require.Zero(t, printed.code, printed.errOut)
	require.Equal(t, script, printed.out)

	dsn := os.Getenv("OUTBOX_TEST_SQLSERVER_DSN")
	if dsn == "" {
		return // scripts/with-databases says so
	}
	requireTold(t, story{{"ordered socks", "shipped socks"}}, run(t, "sqlserver", "-dsn", dsn))
}

// Without their servers, examples say what they need and how to get it.
func TestWhatIsMissingIsSaid(t *testing.T) {
	for name, want := range map[string]string{
		"forward-to-rabbitmq": "-amqp amqp://",
		"forward-to-kafka":    "-brokers localhost:9092",
		"sqlserver":           `-dsn "sqlserver://`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, name)
			require.Equal(t, 2, got.code)
			require.Empty(t, got.out)
			require.Contains(t, got.errOut, "This example needs a")
			require.Contains(t, got.errOut, "docker run ")
			require.Contains(t, got.errOut, want)
		})
	}
}
