package outbox

import "sync"

// runs tracks the messages that claims have taken from ordered streams. One message of a stream is out at a time; the others
// follow one by one, or go back with it. If whole is set, all of them are out at once.
type runs struct {
	whole bool

	mu   sync.Mutex
	runs map[streamName]*run // still going
}

type run struct {
	out    int         // handed out and not yet answered
	behind []*Delivery // not yet handed out
}

type streamName struct{ topic, key string }

func newRuns(whole bool) *runs { return &runs{whole: whole, runs: map[streamName]*run{}} }

func (d *Delivery) stream() streamName { return streamName{d.Topic(), d.StreamKey()} }

// begin adds the messages of a claim, which are in order, and returns those to hand out now. It is called before any of them
// can be answered.
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

// after decides what an answer means for the messages behind it: either the next one is handed out, or all of them go back.
// ended reports whether the run is over.
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
