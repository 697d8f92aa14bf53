package kafka_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/kafka"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/testserver"
)

// No broker is needed to begin, and a batch of any size is given back in seconds.
func TestABrokerThatComesLaterIsFound(t *testing.T) {
	number, address := testserver.FreePort(t)
	publisher := newPublisher(t, []string{address})
	messages, topic := newMessages(2000), topicName()
	begun := time.Now()
	s := &server{t: t}
	for range 2 {
		for _, err := range each(t, publisher.Publish(topic, messages...), len(messages)) {
			if err == nil || outbox.IsPermanent(err) {
				t.Fatal("nothing can have been decided", err)
			}
		}
	}
	if took := time.Since(begun); took > patience {
		t.Fatalf("it took %v to say that there is no broker", took)
	}
	startFake(t, kfake.Ports(number))
	s = newServer(t, []string{address})
	s.create(topic, 3)
	s.NoError(publishAll(publisher, topic, messages))
	s.Len(s.read(topic, len(messages)), len(messages))
}

// The broker goes away with a connection that was in use, and comes back at the same address with what it had.
func TestABrokerThatIsStartedAgainIsFound(t *testing.T) {
	number, address := testserver.FreePort(t)
	folder := t.TempDir()
	fake := startFake(t, kfake.Ports(number), kfake.DataDir(folder))
	s := newServer(t, []string{address})
	topic := s.createTopic(3)
	publisher := s.newPublisher()
	s.NoError(publisher.Publish(topic, newMessages(100)...))

	fake.Close()
	begun := time.Now()
	messages := newMessages(1000)
	for range 3 {
		for _, err := range each(t, publisher.Publish(topic, messages...), len(messages)) {
			s.Error(err)
			s.False(outbox.IsPermanent(err))
		}
	}
	s.Less(time.Since(begun), patience)

	startFake(t, kfake.Ports(number), kfake.DataDir(folder))
	s.NoError(publishAll(publisher, topic, messages))
	s.Len(s.read(topic, 1100), 1100)
}

// What is on its way is lost, answers too. Publish is called again with what failed, as the forwarder does.
func TestCutConnectionsLoseNothing(t *testing.T) {
	l := &line{}
	s := newFake(t, kfake.NumBrokers(2), kfake.ListenFn(l.listen))
	topic := s.createTopic(4)
	publisher := s.newPublisher()
	const publishers, batches, size, cuts = 3, 60, 50, 20

	done := make(chan struct{})
	published := make(chan struct{}, publishers*batches)
	var all sync.WaitGroup
	for range publishers {
		all.Go(func() {
			for range batches {
				if err := publishAll(publisher, topic, newMessages(size)); err != nil {
					t.Error(err)
					return
				}
				published <- struct{}{}
			}
		})
	}
	go func() { all.Wait(); close(done) }()
	for range cuts { // each after some progress
		for range 3 {
			select {
			case <-published:
			case <-done:
			}
		}
		l.cut()
	}
	<-done
	records := s.read(topic, publishers*batches*size)
	t.Logf("%d messages, %d connections cut, %d duplicates", publishers*batches*size, cuts, len(records)-publishers*batches*size)
}

// Requests are refused and connections cut at random, often until the publisher gives up and numbers its messages anew. Were
// two batches to get the same number, Kafka would take one for the other, and lose it. They are small, so that they could.
func TestRefusalsLoseNothingAndKeepTheOrder(t *testing.T) {
	s := newFake(t, kfake.NumBrokers(2))
	topic := s.createTopic(2)
	publisher := s.newPublisher(func(c *kafka.Config) { c.RetryTimeout = 100 * time.Millisecond })
	s.disturb()
	const publishers, batches = 6, 60
	var all sync.WaitGroup
	var published atomic.Int64
	for p := range publishers {
		all.Go(func() {
			n := 0
			for range batches {
				var batch []*message.Message
				for range 1 + rand.IntN(6) {
					batch = append(batch, newMessage(fmt.Sprint(n), outbox.HeaderStreamKey, fmt.Sprint(p)))
					n++
				}
				if err := publishAll(publisher, topic, batch); err != nil {
					t.Error(err)
					return
				}
			}
			published.Add(int64(n))
		})
	}
	all.Wait()
	n := int(published.Load())
	records := s.read(topic, n)
	t.Logf("%d messages, %d duplicates", n, len(records)-n)
	inOrder(t, firsts(records))
}

// firsts leaves out what is there for a second time.
func firsts(records []*kgo.Record) (list []*kgo.Record) {
	known := map[string]bool{}
	for _, record := range records {
		if uuid := header(record, uuidHeader); !known[uuid] {
			known[uuid] = true
			list = append(list, record)
		}
	}
	return list
}

// disturb cuts some connections on a request, and refuses every other request.
func (s *server) disturb() {
	s.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		s.fake.KeepControl()
		if rand.IntN(20) == 0 {
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	})
	s.answerProduce(func(int32) *kerr.Error {
		switch rand.IntN(4) {
		case 0:
			return kerr.NotEnoughReplicas
		case 1:
			return kerr.NotLeaderForPartition
		default:
			return nil
		}
	})
}

// publishAll publishes until nothing fails.
func publishAll(publisher *kafka.Publisher, topic string, messages []*message.Message) error {
	for deadline := time.Now().Add(patience); len(messages) > 0; {
		err := publisher.Publish(topic, messages...)
		if err == nil {
			return nil
		}
		var each *forwarder.BatchError
		if !errors.As(err, &each) || time.Now().After(deadline) {
			return err
		}
		var left []*message.Message
		for i, err := range each.Errs {
			if outbox.IsPermanent(err) {
				return err
			}
			if err != nil {
				left = append(left, messages[i])
			}
		}
		messages = left
	}
	return nil
}

// What a partition that is away has not taken is given back, and at Close at once; the others are not kept waiting.
func TestAPartitionThatIsAwayIsGivenBack(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"after RetryTimeout": 200 * time.Millisecond, "at Close": time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newFake(t, kfake.NumBrokers(2))
			topic := s.apart()
			tried := make(chan struct{}, 1000)
			s.answerProduce(func(partition int32) *kerr.Error {
				if partition == 0 {
					tried <- struct{}{}
					return kerr.NotEnoughReplicas
				}
				return nil
			})
			publisher := s.newPublisher(func(c *kafka.Config) { c.Timeout, c.RetryTimeout = timeout, timeout })
			if timeout == time.Hour {
				go func() {
					<-tried
					if err := publisher.Close(); err != nil {
						t.Error(err)
					}
				}()
			}
			failed := 0
			for _, err := range each(t, publisher.Publish(topic, newMessages(50)...), 50) {
				if err != nil {
					s.True(base.IsUnavailable(err), "%v", err)
					failed++
				}
			}
			records, messages := s.readAtLeast(topic, 50-failed)
			s.Len(records, messages, "none has arrived twice")
			if timeout < time.Hour { // what Close interrupts may have arrived all the same
				s.Equal(50-failed, messages)
			}
		})
	}
}

// apart makes a topic of two partitions, each with a broker of its own, and so its own requests.
func (s *server) apart() string {
	s.t.Helper()
	topic := s.createTopic(2)
	for partition := range int32(2) {
		s.NoError(s.fake.MoveTopicPartition(topic, partition, partition))
	}
	return topic
}

// Leaders change while messages are published; nothing is lost, and each stream keeps its order.
func TestLeadersThatChange(t *testing.T) {
	s := newFake(t, kfake.NumBrokers(3))
	topic := s.createTopic(6)
	publisher := s.newPublisher()
	const rounds, streams = 40, 10
	for round := range rounds {
		if round%4 == 3 {
			s.fake.ShufflePartitionLeaders()
		}
		var batch []*message.Message
		for stream := range streams {
			batch = append(batch, newMessage(fmt.Sprint(round), outbox.HeaderStreamKey, fmt.Sprint(stream)))
		}
		s.NoError(publisher.Publish(topic, batch...))
	}
	records := s.read(topic, rounds*streams)
	s.Len(records, rounds*streams)
	inOrder(t, records)
}
