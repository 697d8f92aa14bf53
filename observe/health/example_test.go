package health_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/incursa/watermill-outbox/observe/health"
)

func Example() {
	handler, err := health.New(health.Config{Ready: map[string]health.Check{
		"migrations": func(context.Context) error { return errors.New("running") }, // or health.Database, Forwarder, Stores
	}})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/livez", handler)
	mux.Handle("/readyz", handler)

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 503 {"status":"unavailable","checks":[{"name":"migrations","status":"unavailable","why":"running"}]}
}
