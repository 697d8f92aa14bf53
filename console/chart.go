package console

import (
	"fmt"
	"strings"
	"time"
)

// A chart is one measure over the last hour, or since the console began to look, as numbers for SVG. Its parts are nothing
// but numbers and units.
type chart struct {
	Name, Now, Most string
	Line, Area      string // points
	Width, Height   int
	Bottom          int
	From            string // how long ago the first point was
	Empty           bool
}

// A measure is what a chart shows of points.
type measure struct {
	name  string
	value func(point) float64
	text  func(float64) string
}

var (
	dueMeasure  = measure{"Due", func(p point) float64 { return float64(p.due) }, func(f float64) string { return upTo(int(f)) }}
	ageMeasure  = measure{"Oldest", func(p point) float64 { return float64(p.age) }, func(f float64) string { return span(time.Duration(f * float64(time.Second))) }}
	rateMeasure = measure{"Published a second", func(p point) float64 { return p.rate64() }, rate}
)

func (p point) rate64() float64 { return float64(p.rate) }

// largeCharts are those of a page, and small ones fit into a row.
func largeCharts(points []point) []chart {
	return []chart{dueMeasure.chart(points, 480, 96), ageMeasure.chart(points, 480, 96), rateMeasure.chart(points, 480, 96)}
}

func smallChart(points []point) chart { return dueMeasure.chart(points, 96, 20) }

func (m measure) chart(points []point, width, height int) chart {
	c := chart{Name: m.name, Width: width, Height: height, Bottom: height - 1, Empty: len(points) < 2}
	if c.Empty {
		return c
	}
	most := 0.0
	for _, p := range points {
		most = max(most, m.value(p))
	}
	last := points[len(points)-1]
	c.Now, c.Most = m.text(m.value(last)), m.text(most)
	scale := max(most, 1e-9)
	window := max(last.at.Sub(points[0].at), 10*time.Second)
	c.From = span(window)
	x := func(at time.Time) float64 { return float64(width) * (1 - last.at.Sub(at).Seconds()/window.Seconds()) }
	var line strings.Builder
	for _, p := range points {
		y := float64(c.Bottom) - m.value(p)/scale*float64(height-3)
		fmt.Fprintf(&line, "%.1f,%.1f ", x(p.at), y)
	}
	c.Line = strings.TrimSpace(line.String())
	c.Area = fmt.Sprintf("%.1f,%d %s %d,%d", x(points[0].at), c.Bottom, c.Line, width, c.Bottom)
	return c
}
