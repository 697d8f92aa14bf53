package console

import (
	"io/fs"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The policy would refuse what is written into a page.
func TestPagesHaveNoScriptAndNoStyleOfTheirOwn(t *testing.T) {
	names, err := fs.Glob(files, "pages/*.html")
	require.NoError(t, err)
	require.Greater(t, len(names), 15)
	for _, name := range names {
		text, err := files.ReadFile(name)
		require.NoError(t, err)
		require.NotRegexp(t, `(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script>|<iframe|https?://`, string(text), name)
	}
}

// Texts are at least 4.5 times as light, or as dark, as what is behind them (WCAG 2, AA).
func TestColoursHaveContrast(t *testing.T) {
	text, err := files.ReadFile("assets/console.css")
	require.NoError(t, err)
	light, dark, found := strings.Cut(string(text), "prefers-color-scheme: dark")
	require.True(t, found)
	dark, _, _ = strings.Cut(dark, "@supports")
	for name, scheme := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(scheme, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		for _, pair := range []string{"ink bg", "ink hover", "ink field", "ink soft", "ink bad-soft", "quiet bg", "quiet hover", "quiet field", "accent bg",
			"accent hover", "accent soft", "bad bg", "bad hover", "bad bad-soft", "bad soft", "bad field", "on-accent accent", "on-bad bad"} {
			front, back, _ := strings.Cut(pair, " ")
			require.NotZero(t, colours[front], pair)
			a, b := colours[front], colours[back]
			require.GreaterOrEqual(t, (max(a, b)+0.05)/(min(a, b)+0.05), 4.5, "%s: %s", name, pair)
		}
	}
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		require.NoError(t, err)
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func TestNumbersAndSpans(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "−1,000"} {
		require.Equal(t, want, number(n))
	}
	for d, want := range map[time.Duration]string{0: "0 s", -time.Second: "0 s", 5 * time.Millisecond: "5 ms", 90 * time.Second: "1 min",
		47 * time.Hour: "47 h", 49 * time.Hour: "2 d"} {
		require.Equal(t, want, span(d))
	}
	require.Equal(t, "10,000+", upTo(10_000))
	require.Equal(t, "0.5", rate(0.5))
}

// A sample that began before somebody paused a topic may end after the one that shows the pause.
func TestAnOldSampleDoesNotHideANewerOne(t *testing.T) {
	var h history
	begun := time.Now()
	newer := &sample{begun: begun.Add(time.Second)}
	h.add(newer)
	h.add(&sample{begun: begun})
	require.Same(t, newer, h.latest())
	require.Len(t, h.points(""), 1)
}

func TestChartsCoverTheHour(t *testing.T) {
	var points []point
	begun := time.Now()
	for i := range 1000 {
		points = appendPoint(points, point{at: begun.Add(time.Duration(i) * 10 * time.Second), due: float32(i % 50)})
	}
	require.Len(t, points, 361)
	c := dueMeasure.chart(points, 100, 20)
	require.Equal(t, "1 h", strings.Replace(c.From, "60 min", "1 h", 1))
	require.Equal(t, "49", c.Most)
	require.Regexp(t, `^0\.0,`, c.Line)
	require.Regexp(t, ` 100\.0,[0-9.]+$`, c.Line)
	require.NotContains(t, c.Line, "NaN")
	require.True(t, dueMeasure.chart(points[:1], 100, 20).Empty)
	require.NotContains(t, dueMeasure.chart(make([]point, 3), 100, 20).Line, "NaN", "nothing at all is drawn as a line at the bottom")
}
