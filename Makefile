# Everything a person or CI does here, one word each. `make` alone lists them.

SHELL := /usr/bin/env bash -o pipefail
.DEFAULT_GOAL := help
CARGO := cargo
SANDBOX := $(CARGO) run --quiet --package sandbox --bin sandbox --

.PHONY: help setup test lint gen bench demo demo-down clean

help: ## List what can be made
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Root can also run nodes: without it their tests say that they did not run.
setup: ## Install and build what is needed: system packages, Rust, a Kubernetes from Go modules
	@hack/setup $(if $(filter 0,$(shell id -u)),--node)
	@$(SANDBOX) build etcd kubernetes

test: setup ## Run all tests, on one real Kubernetes control plane
	@$(SANDBOX) build
	$(SANDBOX) run -- $(CARGO) test --workspace

lint: ## Check formatting, lints, docs, dependencies, scripts, workflows, charts and generated files
	@hack/lint

gen: ## Write the generated files anew: the reference pages, the charts' kinds and values
	@hack/gen

bench: setup ## Measure, print a table, and write target/bench/*.json
	@$(SANDBOX) build kubernetes-node coredns pause echo
	$(CARGO) bench --workspace --quiet

demo: setup ## Show it at work: a control plane, an operator, an object's life from start to end
	@hack/demo up

demo-down: ## Take the demo down
	@hack/demo down

clean: ## Remove what was built here; the cache of cluster parts stays (OPCORE_CACHE)
	$(CARGO) clean
