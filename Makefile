.PHONY: help up build test test-all stress mutants torture failover schedules bench lint generate
.DEFAULT_GOAL := help

# FOR is how long each part of torture runs, and the search of schedules.
FOR ?= 10m
# ROUNDS is how often stress runs each package; ONLY selects packages by a part of their path,
# and mutants by a part of their name or file.
ROUNDS ?= 30
ONLY ?=
ARGS ?=
# Omitting debug information saves a tenth of the compile time. -trimpath makes the
# build cache independent of the path of the checkout.
export GOFLAGS := $(shell go env GOFLAGS) -gcflags=all=-dwarf=false -trimpath
# Tests and the linter compile as scripts/release does, which the test of the image runs.
test test-all stress mutants torture failover schedules lint generate: export CGO_ENABLED := 0

help: ## lists these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## runs Posthorn with its own Postgres server; Ctrl-C stops both; ARGS="--pg-port 5433" are flags of posthorn up
	@exec scripts/up $(ARGS)

build: ## builds bin/posthorn
	@go build -o bin/posthorn ./cmd/posthorn

test: ## runs every test on the installed Postgres (15 or newer), with a part of the combinations where there are many
	@scripts/deps
	@go run ./internal/test/testrun $(RETRY) -only "$(ONLY)"

test-all: ## runs every test with all combinations, and a part of those that depend on the version of Postgres also on 18; before a change lands
	@scripts/deps
	@scripts/deps kafka || true
	@go run ./internal/test/testrun -all $(RETRY) -only "$(ONLY)"

stress: ## runs each package's tests ROUNDS=30 times on a busy machine; continues an interrupted run
	@scripts/deps
	@go run ./internal/test/testrun -stress $(ROUNDS) -only "$(ONLY)"

mutants: ## breaks the code in small ways, one at a time, and prints those that no test notices; ONLY=settle, ARGS="-every 9"; before a release
	@scripts/deps
	@go run ./internal/test/mutants -only "$(ONLY)" $(ARGS)

torture: ## kills workers, brokers and Postgres, and checks every event and job; PART=log, jobs, pipeline, kafka, failover, lossy-failover, cancelled-waits or patroni, each FOR=10m
	@scripts/deps
	@scripts/deps kafka || true
	go test -timeout 0 -count 1 -v -run 'TestTorture$$' ./internal/torture -torture.for $(FOR) -torture.part "$(PART)"
	POSTHORN_TEST_KILLS=100 go test -timeout 0 -count 1 -run 'Survives?(Its|Their)Process|Killed$$' ./archive ./internal/consume ./internal/importer ./internal/project ./internal/relay ./internal/work
	POSTHORN_TEST_KILLS=1 go test -timeout 0 -count 1 -run 'TestServer|TestABrokerIsAway' ./relay/kafka ./internal/importer

failover: ## kills primaries under load, so that standbys take over, without and with a loss, and by Patroni, each FOR=10m, and checks everything
	@scripts/deps
	@scripts/deps patroni || true
	for part in failover lossy-failover cancelled-waits patroni; do \
	  go test -timeout 0 -count 1 -v -run 'TestTorture$$' ./internal/torture -torture.for $(FOR) -torture.part $$part || exit 1; done

schedules: ## searches interleavings of statements for one that breaks a promise, FOR=10m or FOR=8h; ARGS="-scenario late -n 500"
	@scripts/deps
	@go run ./internal/schedules $(or $(ARGS),-for $(FOR))

bench: ## compares Posthorn with Postgres and other systems; writes docs/performance.md and its charts; ARGS=-quick only prints
	@scripts/deps bench
	@scripts/deps kafka || true
	cd bench && go run . $(or $(ARGS),-write ..)

lint: ## checks style, error handling and the direction of imports
	@linter=$$(scripts/test-program golangci-lint) && $$linter run ./...

generate: ## writes all files that tests compare with: schema/revision, docs/sql.md, docs/reference.md, the index of decisions, deploy, help, OpenAPI, docs/llms.txt, the exported names
	go generate ./schema ./internal/dashboard ./op ./server ./cmd/posthorn ./internal/llms ./internal/surface
	go test -count 1 -run "^TestDecisionsAreListed$$" ./internal/test/testtree -update
