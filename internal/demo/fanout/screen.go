package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// A screen tells what happens, a line each, with the seconds since the start.
type screen struct {
	out     io.Writer
	started time.Time
}

func newScreen(out io.Writer) *screen { return &screen{out, time.Now()} }

func (s *screen) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.started).Seconds(), fmt.Sprintf(format, args...))
}

// tell tells what a dispatcher has done.
func (s *screen) tell(dispatcher string, n news) {
	switch {
	case n.Hangs:
		s.say("%s: %-9s is in the middle of its next transaction", dispatcher, n.Policy)
	case n.Matched > 0:
		s.say("%s: %-9s sends %2d orders on, up to position %d", dispatcher, n.Policy, n.Matched, n.Position)
	}
}

// print prints the counts. An order that is missing, or there twice, or out of order, is an error.
func (s *screen) print(counts []count) error {
	var lost, doubled, unsorted int
	fmt.Fprintln(s.out)
	for _, c := range counts {
		order := "in order"
		if c.unsorted > 0 {
			order = fmt.Sprintf("%d out of order", c.unsorted)
		}
		fmt.Fprintf(s.out, "%-38s %4d of %d orders, %s\n", c.destination, c.arrived, c.expected, order)
		lost, doubled, unsorted = lost+c.lost, doubled+c.doubled, unsorted+c.unsorted
	}
	fmt.Fprintf(s.out, "\nlost %d, doubled %d\n", lost, doubled)
	if lost+doubled+unsorted > 0 {
		return errors.New("every destination should have every order of its once, in order")
	}
	return nil
}
