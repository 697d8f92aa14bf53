package acceptance_test

import (
	"context"
	"net/http"
	"os"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/examples/event-registration/broker"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

// A rabbit is a channel of the test's own.
type rabbit struct{ *amqp091.Channel }

func dial(t *testing.T, url string) rabbit {
	t.Helper()
	connection, err := amqp091.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() }) // the broker may have gone before
	channel, err := connection.Channel()
	require.NoError(t, err)
	return rabbit{channel}
}

func (r rabbit) publish(t *testing.T, exchange, key string, headers amqp091.Table, body string) {
	t.Helper()
	require.NoError(t, r.PublishWithContext(t.Context(), exchange, key, false, false, amqp091.Publishing{Headers: headers, Body: []byte(body), DeliveryMode: amqp091.Persistent}))
}

// count is how many messages are ready in a queue, which it declares if need be.
func (r rabbit) count(t *testing.T, queue string) int {
	t.Helper()
	q, err := r.QueueDeclare(queue, true, false, false, false, nil)
	require.NoError(t, err)
	return q.Messages
}

// clean empties the queues, which tests share.
func (r rabbit) clean(t *testing.T) {
	t.Helper()
	for queue := range broker.Queues {
		for _, name := range []string{queue, broker.DeadLetters(queue)} {
			r.count(t, name)
			_, err := r.QueuePurge(name, false)
			require.NoError(t, err)
		}
	}
}

func withID(id string) amqp091.Table { return amqp091.Table{"_watermill_message_uuid": id} }

func TestWhatCannotBeReadGoesToTheDeadLettersOfItsQueueAlone(t *testing.T) {
	url := testbroker.URL(t)
	r := dial(t, url)
	r.clean(t)
	f := start(t, "", url)
	f.tell(t)
	r.publish(t, "", "mail.joins", withID(watermill.NewUUID()), "{")
	r.publish(t, "", "mail.joins", amqp091.Table{"_watermill_message_uuid": 7}, "{}")
	r.publish(t, "", "mail.joins", nil, `{"type":"join.confirmed"}`)
	r.publish(t, "", "catalog.joins", withID(watermill.NewUUID()), `"a text"`)
	dead := func(mail, catalog int) func() bool {
		return func() bool {
			return r.count(t, broker.DeadLetters("mail.joins")) == mail && r.count(t, broker.DeadLetters("catalog.joins")) == catalog
		}
	}
	require.Eventually(t, dead(3, 1), waitFor, tick)
	require.Zero(t, r.count(t, broker.DeadLetters("registration.events")))
	letter, found, err := r.Get(broker.DeadLetters("catalog.joins"), true)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, `"a text"`, string(letter.Body))
	require.Contains(t, letter.Headers[broker.HeaderWhy], "cannot unmarshal")

	// One that can be read now is handled when it is redriven; the others come back.
	mails := f.countMails()
	r.publish(t, "", broker.DeadLetters("mail.joins"), withID(watermill.NewUUID()), `{"type":"join.confirmed","event_id":"x","user_id":"a"}`)
	require.Eventually(t, dead(4, 0), waitFor, tick)
	redriven, err := f.Redrive(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, redriven["mail.joins.dead"])
	require.Eventually(t, func() bool { return f.countMails() == mails+1 }, waitFor, tick)
	require.Eventually(t, dead(3, 0), waitFor, tick)
	queue, err := f.DeadLetters(t.Context(), "mail.joins")
	require.NoError(t, err)
	require.Empty(t, queue)
}

// What fails for a while is tried again, and is no dead letter.
func TestATransientErrorIsNoDeadLetter(t *testing.T) {
	f := start(t, "", "")
	require.NoError(t, os.RemoveAll(f.mails))
	require.NoError(t, os.WriteFile(f.mails, nil, 0o600)) // in the place of the folder
	f.save(t, 1, "open")
	require.Eventually(t, func() bool { return f.status(t) == "open" }, waitFor, tick)
	require.Equal(t, http.StatusOK, f.post(t, "a", "join", "").status)
	f.until(t, 1, 0)
	failed := func() bool {
		var attempts int
		err := f.db.QueryRowContext(context.Background(), "SELECT MAX(retry_count) FROM mail_inbox_view").Scan(&attempts)
		return err == nil && attempts > 0
	}
	require.Eventually(t, failed, waitFor, tick)
	require.NoError(t, os.Remove(f.mails))
	require.NoError(t, os.Mkdir(f.mails, 0o700))
	require.Eventually(t, func() bool { return f.countMails() == 1 }, waitFor, tick)
	dead, err := f.DeadLetters(t.Context(), "mail.joins")
	require.NoError(t, err)
	require.Empty(t, dead)
}

// The service starts and works while the broker is away, and goes on when the connection is lost.
func TestLong_TheConsumersWaitForTheBrokerAndComeBackToIt(t *testing.T) {
	node := testbroker.Node(t)
	proxy := testbroker.NewProxy(t, node.URL())
	require.NoError(t, node.Stop())
	f := start(t, "", proxy.URL)
	f.save(t, 2, "open")
	require.Equal(t, "event.not_found", f.post(t, "a", "join", "").code(t))
	require.NoError(t, node.Start(t.Context()))
	require.Eventually(t, func() bool { return f.status(t) == "open" }, waitFor, tick)
	require.Equal(t, http.StatusOK, f.post(t, "a", "join", "").status)
	f.until(t, 1, 0)
	for users := 2; users < 5; users++ {
		require.Positive(t, proxy.Cut())
		require.Equal(t, http.StatusOK, f.post(t, string(rune('a'+users)), "join", "").status)
		f.until(t, min(users, 2), users-min(users, 2))
	}
	require.Eventually(t, func() bool { return f.countMails() == 4 }, waitFor, tick)
	r := dial(t, node.URL())
	for queue := range broker.Queues {
		require.Zero(t, r.count(t, broker.DeadLetters(queue)), queue)
	}
}

// Consumers that cannot start end the process with an error; they are not left out.
func TestABadBrokerAddressIsAnError(t *testing.T) {
	p := newProcess(t, "join-service", "-folder", t.TempDir(), "-amqp", "http://nowhere")
	require.NoError(t, p.start())
	<-p.ended
	require.False(t, p.cmd.ProcessState.Success())
	require.Contains(t, p.log.String(), "Config.URL")
	alone := newProcess(t, "email-service", "-folder", t.TempDir())
	require.NoError(t, alone.start())
	<-alone.ended
	require.Contains(t, alone.log.String(), "needs RabbitMQ")
}
