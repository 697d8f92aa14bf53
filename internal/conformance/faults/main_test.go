package faults_test

import (
	"testing"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

type fixture = suite.Fixture

func TestMain(m *testing.M) { suite.Main(m) }
