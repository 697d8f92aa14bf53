package amqp

import (
	"sync"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// notices is how many returns and confirmations may be buffered. The client drops what it cannot deliver within seconds, so
// there must always be room.
const notices = 4096

// A channel publishes and learns the result of each message. RabbitMQ returns a message before it confirms it.
type channel struct {
	*amqp091.Channel
	session   *session
	frameSize int

	sending sync.Mutex // one call at a time, so that tags are counted as the broker counts them

	mu      sync.Mutex
	tag     uint64
	pending map[uint64]*sent
	byName  map[name][]*sent // in the order in which they were sent
	ended   bool
	cause   error // why it ended
}

// A sent message waits for its confirmation.
type sent struct {
	call     *call
	index    int
	name     name
	returned *amqp091.Return
}

// A name is the part of a message that a return carries. Messages with the same name are told apart by their order.
type name struct{ exchange, key, id string }

// newChannel opens a channel in confirm mode. Its listener runs until the channel ends.
func newChannel(s *session) (*channel, error) {
	opened, err := s.conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := opened.Confirm(false); err != nil {
		return nil, err
	}
	ch := &channel{
		Channel: opened, session: s, frameSize: s.conn.Config.FrameSize,
		pending: map[uint64]*sent{}, byName: map[name][]*sent{},
	}
	ended := opened.NotifyClose(make(chan *amqp091.Error, 1))
	returns := opened.NotifyReturn(make(chan amqp091.Return, notices))
	confirmations := opened.NotifyPublish(make(chan amqp091.Confirmation, notices))
	s.goes(func() { ch.listen(returns, confirmations, ended) })
	return ch, nil
}

func (ch *channel) usable() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return !ch.ended && !ch.IsClosed()
}

// send publishes the unanswered messages of a call, without waiting for confirmations.
func (ch *channel) send(c *call) {
	ch.sending.Lock()
	defer ch.sending.Unlock()
	c.started.Store(true)
	c.moved()
	for i := range c.publishings {
		if c.isAnswered(i) {
			continue
		}
		if err := fitsFrame(c.publishings[i], ch.frameSize); err != nil {
			c.answer(i, err)
			continue
		}
		if !ch.expect(c, i) {
			return
		}
		if err := ch.Publish(c.exchange, c.key, true, false, c.publishings[i]); err != nil {
			if !ch.IsClosed() {
				ch.session.abort() // the client's count of tags may now differ from this one
			}
			for i++; i < len(c.publishings) && ch.expect(c, i); i++ { // end answers them all
			}
			return
		}
		c.moved()
	}
}

// expect records a message before it is sent, because its confirmation may arrive before Publish returns.
func (ch *channel) expect(c *call, i int) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.ended {
		for ; i < len(c.publishings); i++ {
			c.answer(i, ch.cause)
		}
		return false
	}
	ch.tag++
	s := &sent{call: c, index: i, name: name{c.exchange, c.key, c.publishings[i].MessageId}}
	ch.pending[ch.tag] = s
	ch.byName[s.name] = append(ch.byName[s.name], s)
	return true
}

// listen drains both channels and ends when the client has closed them.
func (ch *channel) listen(returns <-chan amqp091.Return, confirmations <-chan amqp091.Confirmation, ended <-chan *amqp091.Error) {
	for returns != nil || confirmations != nil {
		select {
		case r, open := <-returns:
			if !open {
				returns = nil
				continue
			}
			ch.returned(r)
		case c, open := <-confirmations:
			if !open {
				confirmations = nil
				continue
			}
			returns = ch.drain(returns) // returns that preceded this confirmation have arrived by now
			ch.confirmed(c)
		}
	}
	cause := <-ended // nil if this side closed it
	ch.end(cause)
}

func (ch *channel) drain(returns <-chan amqp091.Return) <-chan amqp091.Return {
	for {
		select {
		case r, open := <-returns:
			if !open {
				return nil
			}
			ch.returned(r)
		default:
			return returns
		}
	}
}

func (ch *channel) returned(r amqp091.Return) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, s := range ch.byName[name{r.Exchange, r.RoutingKey, r.MessageId}] {
		if s.returned == nil {
			r.Body, r.Headers = nil, nil
			s.returned = &r
			return
		}
	}
}

func (ch *channel) confirmed(c amqp091.Confirmation) {
	s := ch.take(c.DeliveryTag)
	switch {
	case s == nil:
	case s.returned != nil:
		s.call.answer(s.index, unroutable(s.name.exchange, s.name.key, *s.returned))
	case !c.Ack:
		s.call.answer(s.index, nacked(s.name.exchange, s.name.key))
	default:
		s.call.answer(s.index, nil)
	}
}

func (ch *channel) take(tag uint64) *sent {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	s := ch.pending[tag]
	if s == nil {
		return nil
	}
	delete(ch.pending, tag)
	same := ch.byName[s.name]
	if len(same) == 1 {
		delete(ch.byName, s.name)
		return s
	}
	for i := range same {
		if same[i] == s {
			ch.byName[s.name] = append(same[:i:i], same[i+1:]...)
			break
		}
	}
	return s
}

// end answers all messages that will no longer be confirmed.
func (ch *channel) end(cause *amqp091.Error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ended, ch.cause = true, lost(cause)
	if cause != nil && cause.Server && cause.Recover { // "recover" as in AMQP: the connection is still good
		ch.cause = &collateralError{cause}
	}
	for _, s := range ch.pending {
		s.call.answer(s.index, ch.cause)
	}
	ch.pending, ch.byName = nil, nil
}
