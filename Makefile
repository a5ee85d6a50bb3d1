.PHONY: help up build test stress torture bench lint generate
.DEFAULT_GOAL := help

# Each part of torture runs this long.
FOR ?= 10m
# Stress runs each package this often; ONLY names a part of their paths.
ROUNDS ?= 30
ONLY ?=
ARGS ?=
LINTER = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# Without what debuggers want, a tenth less to compile, and without the path of the
# checkout, so that another checkout of the same files compiles nothing again.
export GOFLAGS := $(shell go env GOFLAGS) -gcflags=all=-dwarf=false -trimpath

help: ## lists these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## runs Posthorn on a Postgres of its own; Ctrl-C stops both; ARGS="--pg-port 5433" are flags of posthorn up
	@exec scripts/up $(ARGS)

build: ## builds bin/posthorn
	@go build -o bin/posthorn ./cmd/posthorn && touch bin/.whole

test: ## passes the tests, on the machine's Postgres (15 or newer); on 18 those that depend on its version
	@scripts/deps
	@go run ./internal/testrun $(RETRY)

stress: ## runs each package's tests ROUNDS=30 times on a busy machine; goes on where it was interrupted
	@scripts/deps
	@go run ./internal/testrun -stress $(ROUNDS) -only "$(ONLY)"

torture: ## kills workers, brokers and Postgres, and checks every event and job; PART=log, jobs or pipeline, each FOR=10m
	@scripts/deps
	go test -timeout 0 -count 1 -v -run 'TestTorture$$' ./internal/torture -torture.for $(FOR) -torture.part "$(PART)"
	POSTHORN_TEST_KILLS=100 go test -timeout 0 -count 1 -run 'Survives?(Its|Their)Process|Killed$$' ./archive ./internal/consume ./internal/importer ./internal/project ./internal/relay ./internal/work

bench: ## measures Postgres and Posthorn side by side; prints docs/performance.md's table
	@scripts/deps postgres
	cd bench && go run . -markdown

lint: ## checks style, errors and the direction of imports
	go vet ./...
	go vet -tags small ./cmd/posthorn
	go run $(LINTER) run ./...

generate: ## after a change of SQL: writes schema/revision and docs/sql.md
	go generate ./schema
