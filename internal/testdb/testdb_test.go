package testdb

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAvailable(t *testing.T) {
	const pg, ms = "OUTBOX_TEST_POSTGRES_DSN", "OUTBOX_TEST_SQLSERVER_DSN"
	const only, required = "OUTBOX_TEST_ONLY", "OUTBOX_TEST_REQUIRE"
	for name, test := range map[string]struct {
		env     map[string]string
		want    []string
		wantErr string
	}{
		"nothing set":               {nil, []string{SQLite}, ""},
		"all":                       {map[string]string{pg: "p", ms: "m"}, []string{SQLite, Postgres, SQLServer}, ""},
		"one left":                  {map[string]string{pg: "p", ms: "m", only: "postgres"}, []string{Postgres}, ""},
		"two left, with a space":    {map[string]string{pg: "p", ms: "m", only: "sqlserver, sqlite"}, []string{SQLite, SQLServer}, ""},
		"required and there":        {map[string]string{pg: "p", required: "sqlite,postgres"}, []string{SQLite, Postgres}, ""},
		"required and missing":      {map[string]string{pg: "p", required: "sqlite,sqlserver"}, nil, "OUTBOX_TEST_SQLSERVER_DSN"},
		"required and left out":     {map[string]string{pg: "p", required: "postgres", only: "sqlite"}, nil, "OUTBOX_TEST_ONLY"},
		"only one that is missing":  {map[string]string{only: "postgres"}, nil, "leaves none"},
		"the broker is no database": {map[string]string{pg: "p", required: "rabbitmq", only: "rabbitmq,postgres"}, []string{Postgres}, ""},
		"nor is Chromium":           {map[string]string{pg: "p", required: "chromium", only: "chromium,postgres"}, []string{Postgres}, ""},
		"nor is Prometheus":         {map[string]string{pg: "p", required: "prometheus", only: "prometheus,postgres"}, []string{Postgres}, ""},
		"only the broker":           {map[string]string{only: "rabbitmq"}, nil, "leaves none"},
		"a misspelt name":           {map[string]string{pg: "p", required: "postgresql"}, nil, `no backend "postgresql"`},
	} {
		t.Run(name, func(t *testing.T) {
			backends, err := available(func(key string) string { return test.env[key] })
			if test.wantErr != "" {
				require.ErrorContains(t, err, test.wantErr)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, b := range backends {
				got = append(got, b.Name)
			}
			require.Equal(t, test.want, got)
		})
	}
}
