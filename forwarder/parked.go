package forwarder

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
)

// How long a message is parked: as long as its destination has been away, between these multiples of RetryMin and of
// RetryMax. To claim it, find it away still, and give it back again costs as much as to publish another.
const (
	parkMin = 30
	parkMax = 3
)

// The outbox is asked, parkedCheck apart, where messages are that are overdue by parkedLate, up to so many and so many bytes
// of them.
const (
	parkedCheck = time.Second
	parkedLate  = 5 * time.Second
	parkedMost  = 500
	parkedBytes = 4 << 20
)

// parked remembers the messages of streams that went back to the outbox while their part of the broker is away, so that
// what comes later does not overtake them.
type parked struct {
	outbox   *outbox.Outbox
	logger   watermill.LoggerAdapter
	min, max time.Duration

	mu      sync.Mutex
	lanes   map[lane][]parkedItem // by seq
	checked time.Time
}

type parkedItem struct {
	seq  outbox.WorkItemID
	id   outbox.MessageID
	size int64
	due  time.Time // by this process's clock, to know when to look where it is
}

func newParked(config Config, box *outbox.Outbox, logger watermill.LoggerAdapter) *parked {
	return &parked{
		outbox: box, logger: logger, min: parkMin * config.RetryMin, max: max(parkMax*config.RetryMax, parkMin*config.RetryMin),
		lanes: map[lane][]parkedItem{},
	}
}

// park gives a message back for a while. No attempt is spent.
func (p *parked) park(it *item, since time.Time) {
	delay := inSteps(min(max(time.Since(since), p.min), p.max))
	d, ok := outbox.DeliveryFrom(it.received.Context())
	if !ok {
		it.received.Nack()
		return
	}
	if it.lane.key != "" {
		p.mu.Lock()
		list := p.lanes[it.lane]
		at, known := p.find(list, it.seq)
		if at > 0 { // not before the one that it comes after
			delay = max(delay, time.Until(list[at-1].due))
		}
		delay = inSteps(delay)
		if !known {
			p.lanes[it.lane] = slices.Insert(list, at, parkedItem{it.seq, d.MessageID(), it.size, time.Now().Add(delay)})
		}
		p.mu.Unlock()
	}
	d.Postpone(delay)
	it.received.Nack()
}

// inSteps rounds up: messages that go back with the same delay are settled together.
func inSteps(delay time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return (delay + step - 1).Truncate(step)
}

func (p *parked) find(list []parkedItem, seq outbox.WorkItemID) (at int, known bool) {
	return slices.BinarySearchFunc(list, seq, func(e parkedItem, seq outbox.WorkItemID) int { return int(e.seq - seq) })
}

// arrived forgets a message that has come again.
func (p *parked) arrived(it *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, known := p.find(p.lanes[it.lane], it.seq); known {
		p.remove(it.lane, at)
	}
}

func (p *parked) remove(l lane, at int) {
	list := p.lanes[l]
	switch {
	case len(list) == 1:
		delete(p.lanes, l)
	case at == 0:
		p.lanes[l] = list[1:]
	default:
		p.lanes[l] = slices.Delete(list, at, at+1)
	}
}

// before is true of a message that would overtake one that is parked.
func (p *parked) before(it *item) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.lanes[it.lane]
	return len(list) > 0 && list[0].seq < it.seq
}

func (p *parked) isEmpty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lanes) == 0
}

// check looks for messages that are overdue, and forgets those that have ended: another forwarder has published them, or
// somebody has cancelled them.
func (p *parked) check() {
	late := p.overdue()
	if len(late) == 0 {
		return
	}
	ids := make([]outbox.MessageID, 0, len(late))
	for id := range late {
		ids = append(ids, id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), parkedLate)
	defer cancel()
	records, err := p.outbox.Get(ctx, ids...)
	if err != nil {
		p.logger.Debug("Cannot look for messages that went back", watermill.LogFields{"err": err})
		return
	}
	for _, r := range records {
		if r.Status == outbox.Ready || r.Status == outbox.InProgress {
			delete(late, r.ID)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, l := range late {
		if at := slices.IndexFunc(p.lanes[l], func(e parkedItem) bool { return e.id == id }); at >= 0 {
			p.remove(l, at)
		}
	}
}

// overdue are the first of their lanes, by id, once in a while.
func (p *parked) overdue() map[outbox.MessageID]lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.checked) < parkedCheck {
		return nil
	}
	p.checked = now
	late, bytes := map[outbox.MessageID]lane{}, int64(0)
	for l, list := range p.lanes {
		for _, e := range list {
			if len(late) == parkedMost || bytes > parkedBytes {
				return late
			}
			if now.Sub(e.due) <= parkedLate {
				break
			}
			late[e.id] = l
			bytes += e.size
		}
	}
	return late
}
