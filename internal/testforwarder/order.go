package testforwarder

import "fmt"

// An Order follows the messages of streams as a broker has them, one after the other.
//
// What is published again after a crash or a cut is there twice. So what counts as an inversion is a message that is there for
// the first time after a later one of its stream. The copies that one call of Publish has sent are in order, too, whether
// they are the first ones or not.
type Order struct {
	Inversions, Disorder, Duplicates int

	Problems []string // the first of them

	next  map[string]int    // by stream, the first message that is not there
	calls map[[2]string]int // by stream and call, the last message
}

// Arrive is for a message of a stream, from 0, and the call that has sent it.
func (o *Order) Arrive(stream string, n int, call string) {
	if o.next == nil {
		o.next, o.calls = map[string]int{}, map[[2]string]int{}
	}
	switch next := o.next[stream]; {
	case n > next:
		o.problem(&o.Inversions, "stream %s: message %d is there before %d", stream, n, next)
		o.next[stream] = n + 1
	case n == next:
		o.next[stream]++
	default:
		o.Duplicates++
	}
	if last, known := o.calls[[2]string{stream, call}]; known && n <= last {
		o.problem(&o.Disorder, "stream %s: call %s has sent message %d before %d", stream, call, last, n)
	}
	o.calls[[2]string{stream, call}] = n
}

// Arrived is how many of a stream are there.
func (o *Order) Arrived(stream string) int { return o.next[stream] }

func (o *Order) problem(count *int, format string, args ...any) {
	if *count++; len(o.Problems) < 10 {
		o.Problems = append(o.Problems, fmt.Sprintf(format, args...))
	}
}
