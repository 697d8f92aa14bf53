package acceptance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Docker is not needed for this: the services of compose.yaml are programs of this module, and read the variables that it sets.
func TestComposeStartsWhatIsHere(t *testing.T) {
	text, err := os.ReadFile("../compose.yaml")
	require.NoError(t, err)
	var compose struct {
		Services map[string]struct {
			Entrypoint  []string
			Build       struct{ Context, Dockerfile string }
			Environment map[string]string
			DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
			Healthcheck struct{ Test []string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &compose))
	source, err := os.ReadFile("../program/program.go")
	require.NoError(t, err)
	programs, err := os.ReadDir("../cmd")
	require.NoError(t, err)
	require.Len(t, programs, 3)
	for _, program := range programs {
		s, found := compose.Services[program.Name()]
		require.True(t, found, program.Name())
		require.Equal(t, []string{program.Name()}, s.Entrypoint)
		require.FileExists(t, filepath.Join("..", s.Build.Context, s.Build.Dockerfile))
		require.Len(t, s.Environment, 4)
		for name := range s.Environment {
			require.Contains(t, string(source), `os.Getenv("`+name+`")`)
		}
		require.Len(t, s.DependsOn, 3)
		for server := range s.DependsOn {
			require.NotEmpty(t, compose.Services[server].Healthcheck.Test, server)
		}
	}
	dockerfile, err := os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	built := regexp.MustCompile(`go build -C (\S+) .* (\S+)\n`).FindStringSubmatch(string(dockerfile))
	require.Equal(t, []string{"examples/event-registration", "./cmd/..."}, built[1:])
	version := regexp.MustCompile(`golang:(\S+)`).FindStringSubmatch(string(dockerfile))
	module, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	require.True(t, strings.Contains(string(module), "\ngo "+version[1]+"."), "the image has the module's Go")
}
