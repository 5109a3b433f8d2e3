# Two commands matter: `make rack` (a bare rack becomes an inference service, on this machine) and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
VENV_STAMP := .venv/.requirements
REQUIREMENTS := requirements.txt requirements-test.txt constraints.txt
export PATH := $(BIN):$(PATH)
export BENCH ?= 0
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg

.PHONY: help setup venv bench rack test lint unit corpus clean

# Real outputs and logs with a MANIFEST.tsv, for `make corpus`.
CASES ?= ../shared/cases

help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install what is absent on this machine, and start the container engine where it isn't running
	@tests/bench/setup
	@$(MAKE) --no-print-directory venv

venv: $(VENV_STAMP) ## the virtual environment, from pinned requirements

$(VENV_STAMP): $(REQUIREMENTS)
	@echo "==> virtual environment from pinned requirements (a minute or two the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "inferack needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V). Say PYTHON=python3.12, for instance." >&2; exit 1; }
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-test.txt -c constraints.txt
	@touch $@

bench: setup ## build the bench and start its nodes
	@tests/bench/bench build
	@tests/bench/bench up

rack: bench ## a bare rack becomes an inference service: build the bench, run site.yml, ask each engine
	@tests/bench/rack

test: setup ## everything that is tested
	@tests/run

lint: venv ## style and types only
	@tests/run lint

unit: venv ## tests that need no node
	@tests/run unit

corpus: venv ## read a folder of outputs and logs with a MANIFEST.tsv (CASES=DIR): one JSON line a file, then a summary
	@$(BIN)/python tests/corpus/read_cases.py "$(CASES)"

clean: ## remove what the commands above made
	@[ ! -x tests/bench/bench ] || tests/bench/bench clean
	@rm -rf .venv .bench inventories/.bench-* reports .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .ansible
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
