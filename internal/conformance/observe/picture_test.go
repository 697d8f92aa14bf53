package observe_test

import (
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A picture draws spans as trees. A child hangs by "└─ ", and a span of another trace that is linked by "~~ ".
type picture struct {
	spans tracetest.SpanStubs
	lines strings.Builder
}

func draw(spans tracetest.SpanStubs) string {
	p := &picture{spans: slices.Clone(spans)}
	slices.SortStableFunc(p.spans, func(a, b tracetest.SpanStub) int {
		if request := trace.SpanKindServer; (a.SpanKind == request) != (b.SpanKind == request) { // a claim may have begun before it
			return map[bool]int{true: -1, false: 1}[a.SpanKind == request]
		}
		return a.StartTime.Compare(b.StartTime)
	})
	for _, s := range p.spans {
		if !s.Parent.IsValid() && len(s.Links) == 0 {
			p.add(s, "", "")
		}
	}
	return p.lines.String()
}

func (p *picture) add(s tracetest.SpanStub, indent, by string) {
	fmt.Fprintf(&p.lines, "%-32s%-10s%s\n", indent+by+s.Name, s.SpanKind, serviceOf(s))
	indent += strings.Repeat(" ", len([]rune(by)))
	for _, other := range p.spans {
		if other.Parent.SpanID() == s.SpanContext.SpanID() {
			p.add(other, indent, "└─ ")
		}
	}
	for _, other := range p.spans {
		if linked(other, s.SpanContext) {
			p.add(other, indent, "~~ ")
		}
	}
}

// linked says whether a span has a link to another.
func linked(s tracetest.SpanStub, to trace.SpanContext) bool {
	for _, link := range s.Links {
		if link.SpanContext.SpanID() == to.SpanID() && link.SpanContext.TraceID() == to.TraceID() {
			return true
		}
	}
	return false
}
