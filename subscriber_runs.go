package outbox

import "sync"

// runs are what claims have taken of ordered streams. Of each stream one message is out at a time, and the others come after it,
// one by one, or go back with it; with whole set all are out at once.
type runs struct {
	whole bool

	mu   sync.Mutex
	runs map[streamName]*run // those that go on
}

type run struct {
	out    int         // handed out and not yet answered
	behind []*Delivery // not yet handed out
}

type streamName struct{ topic, key string }

func newRuns(whole bool) *runs { return &runs{whole: whole, runs: map[streamName]*run{}} }

func (d *Delivery) stream() streamName { return streamName{d.Topic(), d.StreamKey()} }

// begin takes in what a claim has brought, in order, and returns what may be handed out now. All of a run are known before the
// first can be answered.
func (r *runs) begin(deliveries ...*Delivery) (first []*Delivery) {
	first = make([]*Delivery, 0, len(deliveries))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range deliveries {
		if d.StreamKey() == "" {
			first = append(first, d)
			continue
		}
		of := r.runs[d.stream()]
		if of == nil {
			of = &run{}
			r.runs[d.stream()] = of
		}
		if of.out > 0 && !r.whole {
			of.behind = append(of.behind, d)
			continue
		}
		of.out++
		first = append(first, d)
	}
	return first
}

// after is what an answer means for the messages behind: the next may be handed out, or none of them, and they go back. It
// reports whether the run has ended with them.
func (r *runs) after(d *Delivery, goesOn bool) (next *Delivery, back []*Delivery, ended bool) {
	if d.StreamKey() == "" {
		return nil, nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.runs[d.stream()]
	of.out--
	if goesOn && len(of.behind) > 0 {
		next, of.behind = of.behind[0], of.behind[1:]
		of.out++
		return next, nil, false
	}
	if of.out > 0 {
		return nil, nil, false
	}
	delete(r.runs, d.stream())
	return nil, of.behind, true
}
