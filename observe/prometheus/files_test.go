package prometheus_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/skipped"
	observe "github.com/incursa/watermill-outbox/observe/prometheus"
)

// promtool returns Prometheus's own checker. scripts/with-databases installs it.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err == nil {
		return path
	}
	require.NotContains(t, strings.Split(os.Getenv("OUTBOX_TEST_REQUIRE"), ","), "prometheus", "OUTBOX_TEST_REQUIRE names it")
	skipped.Add(t.Name(), "prometheus", "promtool is not installed")
	t.Skip("promtool is not installed: Debian's package prometheus has it")
	return ""
}

func TestAlertsFireAndAreQuiet(t *testing.T) {
	tool := promtool(t)
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput()
		require.NoError(t, err, "%s\n%s", args, out)
	}
}

// Each alert has a case in which it fires.
func TestEveryAlertIsTested(t *testing.T) {
	rules, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	cases, err := os.ReadFile("alerts_test.yaml")
	require.NoError(t, err)
	names := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Contains(t, string(cases), `alertname="`+name[1]+`"`)
	}
}

// queries are those of the dashboard, with its variables filled in.
func queries(t *testing.T) (all []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, panel := range dashboard.Panels {
		require.True(t, panel.Type == "row" || len(panel.Targets) > 0, panel.Title)
		for _, target := range panel.Targets {
			all = append(all, strings.NewReplacer("$store", ".*", "$topic", ".*", "$__rate_interval", "1m").Replace(target.Expr))
		}
	}
	require.NotEmpty(t, all)
	return all
}

func TestQueriesOfTheDashboardAreValid(t *testing.T) {
	tool := promtool(t)
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, query := range queries(t) {
		text, err := json.Marshal(query)
		require.NoError(t, err)
		require.NotContains(t, query, "$")
		rules.WriteString("      - {record: q" + strings.Repeat("x", i) + ", expr: " + string(text) + "}\n")
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	out, err := exec.CommandContext(t.Context(), tool, "check", "rules", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Rules, dashboard and documentation name metrics that exist, and the documentation names all.
func TestNamesExist(t *testing.T) {
	metrics, err := observe.New(observe.Config{})
	require.NoError(t, err)
	descriptions := make(chan *prometheus.Desc, 100)
	metrics.Describe(descriptions)
	close(descriptions)
	var known []string
	for d := range descriptions {
		known = append(known, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
	}
	page, err := os.ReadFile("../../docs/telemetry.md")
	require.NoError(t, err)
	for _, name := range known {
		require.Contains(t, string(page), "`"+name+"`")
	}
	rules, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	text := string(rules) + strings.Join(queries(t), "\n")
	for _, name := range regexp.MustCompile(`outbox_\w+`).FindAllString(text, -1) {
		base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		require.True(t, slices.Contains(known, name) || slices.Contains(known, base), name)
	}
}
