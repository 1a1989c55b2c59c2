KUBE_VERSION := v1.37.2
VERSION      ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)
KV           := k8s.io/component-base/version
LDFLAGS      := -s -w -X main.rollcallVersion=$(VERSION) \
	-X $(KV).gitVersion=$(KUBE_VERSION) -X $(KV).gitMajor=1 -X $(KV).gitMinor=37 -X $(KV).gitTreeState=clean \
	-X k8s.io/client-go/pkg/version.gitVersion=$(KUBE_VERSION) -X k8s.io/client-go/pkg/version.gitMajor=1 -X k8s.io/client-go/pkg/version.gitMinor=37

.PHONY: build run test clean

build:
	@echo "building bin/rollcall (a first build compiles Kubernetes: about ten minutes on two cores)"
	go build -ldflags '$(LDFLAGS)' -o bin/rollcall ./cmd/rollcall

run: build
	bin/rollcall up --data-dir data --sim-nodes 5 --apply examples/node-exporter.yaml --roll

test: build
	go vet ./...
	go test -race ./internal/core/... ./internal/engine/... ./internal/simnode/... ./internal
	go test -count=1 -v ./test/...

clean:
	rm -rf bin data
