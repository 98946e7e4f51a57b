# Everything a person or CI does here, one word each. `make` alone lists them.

SHELL := /usr/bin/env bash -o pipefail
.DEFAULT_GOAL := help
CARGO := cargo
SANDBOX := hack/sandbox

# Root can also run nodes. Without it, what needs one says that it did not run.
IS_ROOT := $(filter 0,$(shell id -u))

.PHONY: help setup test e2e lint gen bench demo demo-down clean

help: ## List what can be made
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install and build what is needed: system packages, Rust, a Kubernetes from Go modules
	@hack/setup $(if $(IS_ROOT),--node)
	@$(SANDBOX) build etcd kubernetes

test: setup ## Run all tests on one real Kubernetes control plane, and as root the quick scenarios on a node
	@$(SANDBOX) build registry crane git-server helm $(if $(IS_ROOT),kubernetes-node coredns pause echo)
	@SECONDS=0; $(SANDBOX) run -- $(CARGO) test --workspace --exclude e2e && \
	  $(SANDBOX) run -- hack/quickstart docs/wave-orchestrator.md && \
	  $(CARGO) test --package e2e --lib --test quick && \
	  echo "All tests passed in $$((SECONDS / 60)) min $$((SECONDS % 60)) s."

e2e: setup ## Play all scenarios on a real node, which needs root, and those with Flux and OpenTofu
	@$(SANDBOX) build
	$(SANDBOX) run --node --audit -- $(CARGO) test --package e2e
	$(CARGO) test --workspace --features sandbox/slow-parts --test opentofu --test showcase --test identity
	$(CARGO) test --package wave-orchestrator --test flux
	$(CARGO) test --package terraform-runner-operator --test tofu
	$(CARGO) test --package lifecycle-operator --test spire
	OPCORE_CRASH_AT_EVERY_WRITE=1 $(CARGO) test --package lifecycle-operator --test cluster crashing
	hack/quickstart --node docs/terraform-runner-operator.md

lint: ## Check formatting, lints, docs, dependencies, scripts, workflows, charts and generated files
	@hack/setup
	@hack/lint

gen: ## Write the generated files anew: the reference pages, the charts' kinds and values
	@hack/gen

# Flux is measured in the same run. Set it to 0 for a quick one.
OPCORE_BENCH_FLUX ?= 1
FLUX := $(filter-out 0,$(OPCORE_BENCH_FLUX))

bench: setup ## Measure, print a table, and write target/bench/*.json; OPCORE_BENCH_FLUX=0 leaves out Flux
	@$(SANDBOX) build kubernetes-node coredns pause echo $(if $(FLUX),git-server source-controller kustomize-controller) \
	  $(if $(IS_ROOT),opentofu provider-local provider-random ca-certificates)
	OPCORE_BENCH_FLUX=$(FLUX) $(CARGO) bench --workspace --quiet

# A story of hack/demo.d, by its name without the number: nobody has to wait for parts that are not asked for.
STORY ?=

demo: setup ## Show it at work on a Kubernetes of its own; STORY=waves, terraform or identity tells one story alone
	@hack/demo up $(foreach story,$(STORY),$(or $(notdir $(wildcard hack/demo.d/*-$(story))),$(story)))

demo-down: ## Take the demo down
	@hack/demo down

clean: ## Remove what was built here; the cache of cluster parts stays (OPCORE_CACHE)
	$(CARGO) clean
