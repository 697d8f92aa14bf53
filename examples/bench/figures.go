package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A figure is something that is measured.
type figure struct {
	name    string
	measure func(context.Context, *bench) ([]result, error)
}

var figures = []figure{
	// Messages a second by many publishers at once, 1 and 100 a call, each call a transaction. The former also by what shares
	// a commit, with one publisher and with many.
	{"publish1", publishing{batch: 1}.measure},
	{"publish100", publishing{batch: 100}.measure},

	// Events a second by many writers at once, one an append; and of a stream that one reader reads in one call.
	{"append", appending{streams: 1000}.measure},
	{"read_stream", readingStream{events: 1000}.measure},

	// Messages a second from the first claim to the last ack, of a table that was full before. Twice the largest claim
	// in flight lets one be handled while the next is claimed.
	{"drain", draining{messages: 150_000, inFlight: 2000}.measure},
	{"drain_delete", draining{messages: 150_000, inFlight: 2000, deletes: true}.measure},
	{"drain_router", draining{messages: 100_000, inFlight: 2000, router: true}.measure},
	{"drain5ms", draining{messages: 60_000, inFlight: 1000, router: true, handler: 5 * time.Millisecond}.measure},

	// The same through a router, with telemetry. Beside it is the product without.
	{"drain_observed", measureObserved},

	// The same beside the functions that the product calls, called in a loop.
	{drainCall, measureCalls},

	// The same of steps of joins, and what a step costs in small and in large joins.
	{"join", joining{messages: 150_000, steps: []int{100}}.measure},
	{"join_size", joining{messages: 100_000, steps: []int{100, 10_000, 100_000}, perStep: true}.measure},

	// Messages a second of ordered streams: of one, and of many. Beside it is the product without keys.
	{"streams", streaming{messages: 60_000, streams: []int{1, 100, 10_000}}.measure},

	// How long a claim of streams takes while half of them are blocked. Beside it is the same without those.
	{"streams_blocked", blocking{streams: 10_000, behind: 20}.measure},

	// From the commit in one process to the handler in another.
	{"latency", measureLatency},

	// How long a claim takes with few and with many messages waiting.
	{"backlog", measureBacklog},

	// What messages cost the database: bytes of PostgreSQL's write-ahead log for each, and calls for 1,000 of them.
	{wal, measureWAL},
	{"roundtrips", measureRoundtrips},

	// Messages a second into RabbitMQ, confirmed, beside a loop that publishes on a connection of its own.
	{forward, measureForward},

	// The same into Kafka, beside loops of franz-go.
	{forwardKafka, measureForwardKafka},
}

// missing says what a figure needs that is not there; it is empty if there is nothing.
func (f figure) missing(o options) string {
	switch {
	case f.name == forward && o.amqp == "":
		return "-amqp, the URL of a RabbitMQ"
	case f.name == drainCall && o.backend != "postgres":
		return "-backend postgres: only there settling and claiming are functions of a statement"
	case f.name == wal && o.backend != "postgres":
		return "-backend postgres: it measures PostgreSQL's write-ahead log"
	default:
		return ""
	}
}

func figureNames() []string {
	names := make([]string, len(figures))
	for i, f := range figures {
		names[i] = f.name
	}
	return names
}

// chosenFigures are those of a list of names; all of them if it is empty.
func chosenFigures(list string) ([]figure, error) {
	if list == "" {
		return figures, nil
	}
	var chosen []figure
	for name := range strings.SplitSeq(list, ",") {
		at := slices.IndexFunc(figures, func(f figure) bool { return f.name == strings.TrimSpace(name) })
		if at < 0 {
			return nil, fmt.Errorf("there is no %q; there are %s", name, strings.Join(figureNames(), ", "))
		}
		chosen = append(chosen, figures[at])
	}
	return chosen, nil
}
