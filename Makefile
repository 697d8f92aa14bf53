# Tools, pinned to exact versions. Each can be replaced: make lint GOLANGCI_LINT=golangci-lint
GOTESTSUM     ?= go run gotest.tools/gotestsum@v1.13.0
GOLANGCI_LINT ?= go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# The race detector needs a C compiler; without one the tests run without it. It does not instrument SQLite's translated C
# and the T-SQL parser, which would take five times as long and contain no code of this project.
UNWATCHED := modernc.org/... github.com/sqlc-dev/teesql/...
RACE ?= $(if $(filter 1,$(shell go env CGO_ENABLED)),-race $(UNWATCHED:%='-gcflags=%=-race=false'))

# How often make stress repeats each test of Watermill's suite.
STRESS_TEST_COUNT ?= 3

# The size of each message of make bench, in bytes. Compare 256, 1536 and 16384.
BENCH_PAYLOAD ?= 256

# How long make statistics runs its bursts and pauses.
OUTBOX_TEST_STATISTICS_MINUTES ?= 60

# How long make snapshot runs each time, and how many messages a second it publishes.
OUTBOX_TEST_SNAPSHOT_MINUTES ?= 10
OUTBOX_TEST_SNAPSHOT_RATE    ?= 4000

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

DATABASES := scripts/with-databases

# The modules of go.work, as folders, and all their packages.
MODULES  := $(sort $(dir $(shell find . -name go.mod)))
PACKAGES := $(MODULES:%/=%/...)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The story that make demo tells: one of the folders of internal/demo with a main.
STORY ?= orders

.PHONY: demo
demo: ## Run a story on embedded SQLite: orders, failures and a killed worker; IN=FILE of webhooks, or STORY=fan-in, …
	go run ./internal/demo/$(STORY) $(if $(IN),-in '$(IN)')

.PHONY: console
console: ## Start the web console on databases with traffic, at http://127.0.0.1:8420/; ARGS='-listen ADDRESS'
	go run ./internal/demo/console $(ARGS)

.PHONY: console-test
console-test: ## Walk through the console in a browser, and time its pages beside a million messages, at full size
	OUTBOX_TEST_CONSOLE=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -p 1 -parallel 1 -timeout 120m ./console ./internal/conformance/console

.PHONY: pictures
pictures: ## Make the pictures of docs/console.md again
	OUTBOX_TEST_PICTURES=$(CURDIR)/docs/console OUTBOX_TEST_REQUIRE=sqlite,rabbitmq,chromium $(DATABASES) go test -count=1 \
		-run 'EveryPageHasItsPicture|ForwardersAreShown/sqlite' ./internal/demo/console ./internal/conformance/console

.PHONY: cli
cli: ## Build the command line, build/outbox: one static program with all three drivers
	CGO_ENABLED=0 go build -C cmd/outbox -trimpath -o $(CURDIR)/build/outbox .

.PHONY: build
build: ## Compile and vet everything, including tests
	go build $(PACKAGES)
	go vet $(PACKAGES)

# Tests mostly wait for leases, polls and processes, so run more of them at once than there are cores.
PARALLEL ?= 6

# run-tests NAME,FLAGS: the tests chosen by FLAGS, on every database; the results go to build/NAME.json. No test crashes the
# machine, so a PostgreSQL started for them need not sync.
define run-tests
	@mkdir -p build && : > build/skipped.txt
	OUTBOX_TEST_FAST=1 OUTBOX_TEST_SKIPPED=$(CURDIR)/build/skipped.txt $(DATABASES) \
		$(GOTESTSUM) --format pkgname-and-test-fails --jsonfile build/$(1).json -- \
		-count=1 -parallel $(PARALLEL) -timeout 40m $(2) $(PACKAGES) || { status=$$?; cat build/skipped.txt; exit $$status; }
	@cat build/skipped.txt
endef

.PHONY: test
test: ## Run all tests but the long ones, on every database available, with the race detector
	$(call run-tests,test,$(RACE) -skip '^TestLong_')

.PHONY: test-long
test-long: ## Run the tests that stop servers, kill processes or measure memory and cost, without the race detector: TestLong_…
	$(call run-tests,test-long,-run '^TestLong_')

.PHONY: test-short
test-short: ## Run the quick tests, on SQLite and on databases named by a DSN; starts no server
	go test -short $(PACKAGES)

.PHONY: test-sqlserver
test-sqlserver: ## Run all tests on SQL Server: on OUTBOX_TEST_SQLSERVER_DSN, or else the one in compose.yaml
	OUTBOX_TEST_START=sqlserver OUTBOX_TEST_ONLY=sqlserver OUTBOX_TEST_REQUIRE=sqlserver $(MAKE) test

.PHONY: stress
stress: ## Run Watermill's stress suite, each test STRESS_TEST_COUNT times at once
	@echo "STRESS_TEST_COUNT=$(STRESS_TEST_COUNT)"
	STRESS_TEST_COUNT=$(STRESS_TEST_COUNT) $(DATABASES) $(GOTESTSUM) --format testname -- \
		$(RACE) -tags stress -count=1 -timeout 60m -run Stress $(PACKAGES)

# How long make fuzz runs each function.
FUZZ_TIME ?= 30s

.PHONY: fuzz
fuzz: ## Fuzz texts, headers, names and messages, FUZZ_TIME each
	for package in . ./internal/conformance/schema ./examples/event-registration/acceptance; do \
		for name in $$(go test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			OUTBOX_TEST_ONLY=sqlite go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZ_TIME) $$package; \
		done; \
	done

.PHONY: kill
kill: ## Kill worker processes while they hold messages, at full size
	OUTBOX_TEST_KILL=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -p 1 -timeout 60m -run Kill $(addprefix ./internal/conformance/,fanout inbox join streams subscriber)

.PHONY: streams
streams: ## Kill workers and forwarders of streams while messages fail, workers come and go and brokers are cut off, at full size
	OUTBOX_TEST_STREAMS=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -p 1 -parallel 1 -timeout 120m -run 'KilledWorkersOfStreams|KilledForwardersOfStreams' ./internal/conformance/...

.PHONY: faults
faults: ## Run every operation while statements hang, are refused and connections are cut, at full size
	@mkdir -p build && : > build/faults.txt
	OUTBOX_TEST_FAULTS=full OUTBOX_TEST_FAULTS_REPORT=$(CURDIR)/build/faults.txt $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -timeout 60m -run TestFaults_ ./internal/conformance/... || { status=$$?; cat build/faults.txt; exit $$status; }
	@cat build/faults.txt

.PHONY: memory
memory: ## Measure the peak memory of large messages, at full size
	OUTBOX_TEST_MEMORY=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -p 1 -parallel 1 -timeout 60m -run PeakMemory $(PACKAGES)

.PHONY: joins
joins: ## Race two workers for the last two steps of joins, at full size
	OUTBOX_TEST_JOINS=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -timeout 60m -run TwoWorkersRace ./internal/conformance/...

.PHONY: publish
publish: ## Publish 100,000 calls that share commits, while connections are cut, backends killed and publishers closed
	OUTBOX_TEST_PUBLISH=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -timeout 60m -run EveryCallIsToldTheTruth ./internal/conformance/publish

.PHONY: events
events: ## Race for versions of streams, catch up at any moment, kill projections, restart PostgreSQL and read a million events
	OUTBOX_TEST_EVENTS=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -p 1 -parallel 1 -timeout 120m \
		-run 'EachConflictIsTold|AnyUnderContention|ACatchUpSubscription|AProjectionThatIsKilled|ADatabaseThatRestarts|PeakMemoryOfReading' ./internal/conformance/eventstore

.PHONY: statistics
statistics: ## Measure bursts while statistics say that the queue is almost empty, and large joins; takes over two hours
	OUTBOX_TEST_STATISTICS=full OUTBOX_TEST_STATISTICS_MINUTES=$(OUTBOX_TEST_STATISTICS_MINUTES) $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -p 1 -parallel 1 -timeout $$((2 * $(OUTBOX_TEST_STATISTICS_MINUTES) + 60))m -run 'Statistics|AttachToALargeJoin' ./internal/conformance/...

.PHONY: snapshot
snapshot: ## Claim for ten minutes at 4,000 messages/s beside an open snapshot on PostgreSQL, with rows kept and deleted
	OUTBOX_TEST_SNAPSHOT_MINUTES=$(OUTBOX_TEST_SNAPSHOT_MINUTES) OUTBOX_TEST_SNAPSHOT_RATE=$(OUTBOX_TEST_SNAPSHOT_RATE) $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -p 1 -parallel 1 -timeout $$((2 * $(OUTBOX_TEST_SNAPSHOT_MINUTES) + 10))m -run ClaimsBesideASnapshotOfMinutes ./internal/conformance/cost

.PHONY: stores
stores: ## Measure 220 databases at once: one is offline, one has a backlog, and some are added and removed
	OUTBOX_TEST_STORES=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -timeout 60m -run ManyStores ./internal/conformance/...

.PHONY: relay
relay: ## Forward to a RabbitMQ that is stopped and cut off, to a Kafka with a partition away, and kill forwarders, at full size
	OUTBOX_TEST_RELAY=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -p 1 -parallel 1 -timeout 60m -run 'Relay|KilledForwardersLose|OnePartitionAway' ./internal/conformance/amqp ./internal/conformance/kafka

.PHONY: inbox
inbox: ## Deliver messages 20 times each through RabbitMQ to consumers that are killed, at full size
	OUTBOX_TEST_INBOX=full $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -timeout 60m -run Inbox ./internal/conformance/amqp

.PHONY: bench bench-each
bench: ## Measure every database, one JSON line per figure, with messages of BENCH_PAYLOAD bytes
	@$(DATABASES) $(MAKE) --no-print-directory bench-each

bench-each:
	go run ./examples/bench -backend sqlite -payload $(BENCH_PAYLOAD) -json
	$(if $(OUTBOX_TEST_POSTGRES_DSN),go run ./examples/bench -backend postgres -dsn "$$OUTBOX_TEST_POSTGRES_DSN" -payload $(BENCH_PAYLOAD) -json)
	$(if $(OUTBOX_TEST_SQLSERVER_DSN),go run ./examples/bench -backend sqlserver -dsn "$$OUTBOX_TEST_SQLSERVER_DSN" -payload $(BENCH_PAYLOAD) -json)

.PHONY: registration
registration: ## Start examples/event-registration on SQLite with a broker in the process; ARGS='-dsn DSN -amqp URL -redis URL' for others
	go run ./examples/event-registration $(ARGS)

.PHONY: registration-test
registration-test: ## Test examples/event-registration at full size: 10,000 joins at once, two minutes in which everything fails
	OUTBOX_TEST_REGISTRATION=full OUTBOX_TEST_FAST=1 $(DATABASES) $(GOTESTSUM) --format standard-verbose -- \
		-count=1 -parallel 4 -timeout 20m ./examples/event-registration/...

.PHONY: requirements
requirements: build/test.json ## Show which test proves which requirement; first runs the tests if a source is newer than their results
	go run ./internal/cmd/requirements -json build/test.json

SOURCES := go.work $(shell find . -name go.mod -o -name go.sum -o -name '*.go' -not -path './internal/cmd/*' -o -name '*.sql')
build/test.json: $(SOURCES)
	$(MAKE) test

.PHONY: lint
lint: ## Check the house rules; the first run builds the linter, which takes minutes
	$(GOLANGCI_LINT) run $(PACKAGES)

.PHONY: fmt
fmt: ## Format the code
	$(GOLANGCI_LINT) fmt

.PHONY: up
up: ## Start the servers of compose.yaml
	docker compose up -d

.PHONY: wait
wait: ## Wait until the servers are ready
	docker compose up -d --wait

.PHONY: down
down: ## Stop the servers and delete their data
	docker compose down --volumes
