package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The library's Examples open SQLite, whose driver their module does not require: see internal/testexample. Here each package
// gets a file that imports it, and they run.
func TestLong_Examples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "*", "example*_test.go"))
	require.NoError(t, err)
	ours, err := filepath.Glob(filepath.Join(root, "example*_test.go"))
	require.NoError(t, err)
	files = append(files, ours...)

	overlay := map[string]string{}
	list := filepath.Join(t.TempDir(), "overlay.json")
	args := []string{"test", "-count=1", "-vet=off", "-v", "-run", "^Example", "-overlay", list}
	examples := 0
	for i, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		examples += len(regexp.MustCompile(`(?m)^\t// (Unordered output|Output):`).FindAll(text, -1))

		folder, err := filepath.Abs(filepath.Dir(file))
		require.NoError(t, err)
		driver := filepath.Join(t.TempDir(), fmt.Sprint(i))
		clause := regexp.MustCompile(`(?m)^package \w+$`).Find(text)
		require.NoError(t, os.WriteFile(driver, fmt.Appendf(nil, "%s\n\nimport _ \"modernc.org/sqlite\"\n", clause), 0o600))
		overlay[filepath.Join(folder, fmt.Sprintf("driver%d_test.go", i))] = driver
		name, err := filepath.Rel(root, filepath.Dir(file))
		require.NoError(t, err)
		args = append(args, path.Join("github.com/incursa/watermill-outbox", filepath.ToSlash(name)))
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(list, text, 0o600))

	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	passed := regexp.MustCompile(`(?m)^--- PASS: Example`).FindAll(out, -1)
	require.NotZero(t, examples)
	require.Len(t, passed, examples, "%s", out)
}
