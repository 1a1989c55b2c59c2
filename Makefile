KUBE_VERSION := v1.37.2
VERSION      ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)
KV           := k8s.io/component-base/version
LDFLAGS      := -s -w -X main.rollcallVersion=$(VERSION) \
	-X $(KV).gitVersion=$(KUBE_VERSION) -X $(KV).gitMajor=1 -X $(KV).gitMinor=37 -X $(KV).gitTreeState=clean \
	-X k8s.io/client-go/pkg/version.gitVersion=$(KUBE_VERSION) -X k8s.io/client-go/pkg/version.gitMajor=1 -X k8s.io/client-go/pkg/version.gitMinor=37

.PHONY: build packages tools run test conformance lint bench clean

# One set of flags everywhere: another compiles Kubernetes once more.
build: tools
	@echo "building bin/rollcall (a first build compiles Kubernetes: about ten minutes on two cores)"
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

packages:
	@scripts/packages.sh

tools: packages
	@echo "building what a real node runs into bin/ (three minutes the first time)"
	tools/build.sh bin

run: build
	bin/rollcall up --data-dir data --sim-nodes 5 --apply examples/node-exporter.yaml --roll

# The node's tests and the whole program's use the one machine: one package at a time.
test: build lint
	go vet ./...
	go test -count=1 -v -run 'Invariants|Twin|ChecksBite|OddFacts' ./internal/core/daemonset
	go test -run '^$$' -fuzz FuzzDecide -fuzztime 30s ./internal/core/daemonset
	go test -race ./internal/core/... ./internal/engine/... ./internal/simnode/... ./internal
	go test -count=1 ./internal/cli/... ./internal/controlplane/...
	go test -count=1 -p 1 -v ./internal/node/... ./test/...

# A module of its own: upstream's specs bring what the product must not depend on.
conformance: build
	cd test/conformance && go vet ./... && go test -count=1 -v -timeout 40m ./...

lint: bin/golangci-lint
	bin/golangci-lint run ./...

bin/golangci-lint: tools/lint/go.mod
	@echo "building golangci-lint (a minute or two the first time)"
	cd tools/lint && go build -o ../../bin/golangci-lint tool

bench: build
	go test -run '^$$' -bench . -benchtime 1x ./test/bench

clean:
	@if [ -e data ]; then bin/rollcall reset --yes --data-dir data || { echo "data/ is kept" >&2; exit 1; }; fi
	rm -rf bin data
