package outbox

import "sync"

// runs hold what a claim has taken of ordered streams: of each stream one message is out, and the others come after it, one
// by one, or go back with it.
type runs struct {
	mu      sync.Mutex
	waiting map[streamName][]*Delivery // behind the one that is out; there is an entry while one is
}

type streamName struct{ topic, key string }

func newRuns() *runs { return &runs{waiting: map[streamName][]*Delivery{}} }

func (d *Delivery) stream() streamName { return streamName{d.Topic(), d.StreamKey()} }

// begin takes in what a claim has brought, in order, and returns what may be handed out now. The rest waits for those of its
// stream that came before it: all are known before the first can be answered.
func (r *runs) begin(deliveries ...*Delivery) (first []*Delivery) {
	first = make([]*Delivery, 0, len(deliveries))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range deliveries {
		if d.StreamKey() == "" {
			first = append(first, d)
			continue
		}
		behind, out := r.waiting[d.stream()]
		if out {
			r.waiting[d.stream()] = append(behind, d)
			continue
		}
		r.waiting[d.stream()] = nil
		first = append(first, d)
	}
	return first
}

// after is what an answer means for the messages behind: the next may be handed out, or none of them, and they go back.
func (r *runs) after(d *Delivery, goesOn bool) (next *Delivery, back []*Delivery) {
	if d.StreamKey() == "" {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	behind := r.waiting[d.stream()]
	if !goesOn || len(behind) == 0 {
		delete(r.waiting, d.stream())
		return nil, behind
	}
	r.waiting[d.stream()] = behind[1:]
	return behind[0], nil
}
