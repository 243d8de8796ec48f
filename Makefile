# SPDX-License-Identifier: Apache-2.0

GO ?= go
# One issue's checks only: make test-all ISSUE=2
ISSUE ?=

.PHONY: build run test test-all bench lint

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/vrnic ./cmd/vrnic

# Boot a guest with a card in it and look at the card with rdma-core.
run: build
	bin/vrnic run -- ibv_devinfo -v

lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted" >&2; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

# What CI runs: quick tests first, boots last.
test: lint build
	$(GO) test -race -timeout 20m ./...
	$(GO) test -count=1 -timeout 10m ./guest/launch -run 'TestBoot|TestPowerOff' -boot debian-backports
	$(GO) test -count=1 -timeout 20m -v ./test/checks -checks ci

# Every check of the issues as a named test, with a table at the end.
test-all: build
	$(GO) test -count=1 -timeout 0 -v ./test/checks -checks all $(if $(ISSUE),-issue $(ISSUE))

# Every benchmark, then the figures that were promised, held against their
# bounds in a table at the end.
bench: build
	$(GO) test -run '^$$' -bench . -benchmem ./...
	$(GO) test -count=1 -timeout 30m -v ./test/bench -run TestEthernet -measure
	$(GO) test -count=1 -timeout 60m -v ./test/bench -run TestGuests -measure
	$(GO) test -count=1 -timeout 20m -v ./test/bench -run TestBoot -measure
	$(GO) test -count=1 -timeout 20m -v ./test/bench -run TestRegions -measure
	$(GO) test -count=1 -timeout 20m -v ./test/bench -run TestTraffic -measure
	$(GO) test -count=1 -timeout 20m -v ./test/bench -run TestScale -measure
	$(GO) test -count=1 -timeout 20m -v ./test/bench -run TestMeasure -measure
