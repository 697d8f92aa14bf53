package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
)

// A result is what is printed of a figure.
type result struct {
	Figure  string  `json:"figure"`
	Backend string  `json:"backend"`
	Payload int     `json:"payload"` // bytes a message
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Bare    float64 `json:"bare"`
	Ratio   float64 `json:"ratio"` // speed of the product by speed of the bare statements

	// How it was measured.
	Of          string `json:"of,omitempty"` // what costs so many bytes: publish or drain; or what the bare side does
	Publishers  int    `json:"publishers,omitempty"`
	Flush       string `json:"flush,omitempty"` // what shares a commit, or the publisher beside it
	MaxInFlight int    `json:"max_in_flight,omitempty"`
	Wakeups     string `json:"wakeups,omitempty"`
	Waiting     int    `json:"waiting,omitempty"`
	Topics      int    `json:"topics,omitempty"`
	Steps       int    `json:"steps,omitempty"` // a join
	Streams     int    `json:"streams,omitempty"`
	Concurrency int    `json:"concurrency,omitempty"` // of a forwarder

	// Quantiles, in milliseconds.
	P50     float64 `json:"p50,omitempty"`
	P95     float64 `json:"p95,omitempty"`
	P99     float64 `json:"p99,omitempty"`
	BareP50 float64 `json:"bare_p50,omitempty"`
	BareP95 float64 `json:"bare_p95,omitempty"`
	BareP99 float64 `json:"bare_p99,omitempty"`
	AckP50  float64 `json:"ack_p50,omitempty"`
	AckP95  float64 `json:"ack_p95,omitempty"`

	CallsPerCommit float64 `json:"calls_per_commit,omitempty"`

	// CPU time of this process, in microseconds a message, and by how many percent it is more than that of the bare side.
	CPU      float64 `json:"cpu_us,omitempty"`
	BareCPU  float64 `json:"bare_cpu_us,omitempty"`
	Overhead float64 `json:"overhead_percent,omitempty"`

	// Growth is P95 by that of the fewest messages waiting, or the cost of a step by that in the smallest join.
	Growth float64 `json:"growth,omitempty"`
}

// perSecond is the result of something of which more is better.
func perSecond(product, bare float64) result {
	return result{Value: round(product), Unit: "messages/s", Bare: round(bare), Ratio: round(product / bare)}
}

// inMilliseconds is the result of something of which less is better.
func inMilliseconds(product, bare float64) result {
	return result{Value: round(product), Unit: "ms", Bare: round(bare), Ratio: round(bare / product)}
}

// perMessage is the same for bytes a message.
func perMessage(product, bare float64) result {
	r := inMilliseconds(product, bare)
	r.Unit = "B/message"
	return r
}

// perThousand is the same for calls in 1,000 messages.
func perThousand(product, bare float64) result {
	r := inMilliseconds(product, bare)
	r.Unit = "calls/1000"
	return r
}

// inMicroseconds is the same for what is very small.
func inMicroseconds(product, bare float64) result {
	r := inMilliseconds(product, bare)
	r.Unit = "us/step"
	return r
}

// round keeps four digits; the rest is noise.
func round(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	digit := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*digit) / digit
}

func printJSON(out io.Writer) func(result) error {
	encoder := json.NewEncoder(out)
	return func(r result) error { return encoder.Encode(r) }
}

func printTable(out io.Writer) func(result) error {
	headed := false
	return func(r result) error {
		if !headed {
			headed = true
			if _, err := fmt.Fprintf(out, "%-10s %-13s %12s %12s  %-10s %6s\n", "backend", "figure", "product", "bare", "unit", "ratio"); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(out, "%-10s %-13s %12s %12s  %-10s %6.2f  %s\n", r.Backend, r.Figure, number(r.Value), number(r.Bare), r.Unit, r.Ratio, r.details())
		return err
	}
}

func number(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}

// details are the fields that only some figures have.
func (r result) details() string {
	var all []string
	add := func(set bool, format string, args ...any) {
		if set {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(r.Of != "", "%s", r.Of)
	add(r.Publishers > 0, "%d publishers", r.Publishers)
	add(r.Flush != "", "%s", r.Flush)
	add(r.CallsPerCommit > 0, "%.3g calls a commit", r.CallsPerCommit)
	add(r.CPU > 0, "CPU %.4g us a message, bare %.4g, overhead %.2g %%", r.CPU, r.BareCPU, r.Overhead)
	add(r.MaxInFlight > 0, "MaxInFlight %d", r.MaxInFlight)
	add(r.Waiting > 0, "%d waiting", r.Waiting)
	add(r.Topics > 0, "topics %d", r.Topics)
	add(r.Steps > 0, "%d steps a join", r.Steps)
	add(r.Streams > 0, "streams %d", r.Streams)
	add(r.Concurrency > 0, "concurrency %d", r.Concurrency)
	add(r.P50 > 0, "p50 %.4g", r.P50)
	add(r.P95 > 0, "p95 %.4g", r.P95)
	add(r.P99 > 0, "p99 %.4g", r.P99)
	add(r.BareP50 > 0, "bare p50 %.4g", r.BareP50)
	add(r.BareP95 > 0, "bare p95 %.4g", r.BareP95)
	add(r.BareP99 > 0, "bare p99 %.4g", r.BareP99)
	add(r.AckP50 > 0, "ack p50 %.4g", r.AckP50)
	add(r.AckP95 > 0, "ack p95 %.4g", r.AckP95)
	add(r.Growth > 0, "growth %.4g", r.Growth)
	add(r.Wakeups != "", "%s", r.Wakeups)
	add(true, "payload %d", r.Payload)
	return strings.Join(all, ", ")
}
