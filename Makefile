# Only Python (3.11 to 3.13), make and a network are needed: `install` brings its own uv and makes .venv from the lock.
PYTHON ?= python3
UV := .uv/bin/uv
UV_VERSION := 0.13.8
# Where the system has a bundle of certificates uv trusts it too, as pip does: behind a company's proxy its own would not do.
UV_SYSTEM_CERTS ?= $(if $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),1,0)
export UV_SYSTEM_CERTS
BIN := .venv/bin
DEMO_ARGS ?=
UP_ARGS ?=
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install services demo test check up-local schemas bench lock format clean

help: ## Show the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	@echo "Fetching uv $(UV_VERSION) ..."
	@$(PYTHON) -m venv .uv
	@.uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"

.venv/.stamp: requirements.lock pyproject.toml | $(UV)
	@echo "Making .venv from requirements.lock ..."
	@test -x $(BIN)/python || $(UV) venv --quiet --python "$$(command -v $(PYTHON))" .venv
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

install: .venv/.stamp ## Make .venv from the lock (hashes checked).

demo: install ## Two conversations and a news feed become a memory; ask it.
	@$(BIN)/banyan demo $(DEMO_ARGS)
	@echo "   The command is in $(BIN):     . $(BIN)/activate" >&2

services: ## Install what tests start (Redis; Java and Maven for Kafka; Chromium), where this user may.
	@sh tests/servers/install.sh

test: install check ## Everything CI runs: check, then the tests. Without the servers, tests that need them are skipped, and said to be.
	@if [ "$$CI" = true ]; then sh tests/servers/install.sh; fi
	@$(BIN)/python -m tests $(PYTEST_ARGS)

check: install ## Lint, format, types, layers, duplicates.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pylint --disable=all --enable=duplicate-code --min-similarity-lines=8 memory streams

format: install ## Apply lint fixes and formatting.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

up-local: install ## Kafka, Redis, topics and workers on this machine, without containers, until Ctrl-C (deploy/README.md).
	@$(BIN)/python -m deploy.local $(UP_ARGS)

schemas: install ## Write the schemas of records and the AsyncAPI document below deploy/, from the models.
	@$(BIN)/python -m streams.schemas deploy

bench: install ## Measure the figures of docs/benchmarks.md on this machine.
	@$(BIN)/python -m tests.bench

lock: $(UV) ## Resolve requirements.lock anew from pyproject.toml.
	@$(UV) pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --upgrade --quiet --output-file requirements.lock

clean: ## Remove what the targets made.
	rm -rf .venv .uv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
