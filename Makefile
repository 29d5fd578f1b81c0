# Needs Python 3.11 or newer, and nothing else. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Images of containers often set it. Without bytecode each process compiles all that it imports: a gateway's start takes twice
# the CPU, and the tests start some thousand processes.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCK := requirements/main.txt
UV_VERSION := 0.13.8
DIR ?= demo
DFS ?= directory
ENGINE ?= rocksdb
ARGS ?=
TLS ?=
# Of the tests: most of them wait most of the time, for leases, servers and other processes.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))

# The first interpreter that is new enough; override with `make setup PYTHON=/path/to/python`.
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14; do \
	  "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$name"; break; }; done)

COMPILE := pip compile pyproject.toml twinlog/pyproject.toml --no-emit-package twinlog --extra flights --extra hdfs --extra spark --extra traces --extra chaos --extra docs --extra dev --universal --fork-strategy fewest \
	--python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url

.PHONY: help setup run interpreters test test-all check fmt bench bench-failover bench-hostile fuzz chaos simulate bugs mutants simulate-coverage story audit \
	audit-story log-story postgres hdfs lock wheels man docs pictures

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## .venv with the pinned dependencies and .venv/bin/twinlog

run: setup ## two sites on this machine, with a real table loaded (DIR=demo, DFS=hdfs, ENGINE=postgresql, TLS=1, ACCESS=1: with a token, ARGS=--no-load)
	@exec $(BIN)/twinlog demo --dir $(DIR) --dfs $(DFS) --engine $(ENGINE) $(if $(TLS),--tls) $(if $(ACCESS),--access) $(ARGS)

interpreters: setup ## .interpreters: the newer Pythons of this machine, on which the simulator must give the same traces
	@$(BIN)/python -m tests.chaos.simulate.interpreters

test: setup ## the tests that a commit needs, two more at a time than there are cores: all but those marked `long` (ARGS="tests/storage -k chain" for a part)
	-@$(BIN)/python -m tests.chaos.simulate.interpreters > /dev/null
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not long" $(ARGS)

test-all: setup ## every test, as CI does (ARGS as above, WORKERS=1 one at a time)
	-@$(BIN)/python -m tests.chaos.simulate.interpreters > /dev/null
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

check: setup ## lint, types, the dependency law, sizes, docstrings, documents, texts of errors, and no address of a registry or a machine
	@echo "ruff: lint";                    $(BIN)/ruff check --quiet --output-format concise
	@echo "mypy: strict";                  $(BIN)/mypy
	@echo "import-linter: the law";        $(BIN)/python -m tools.laws.import_law
	@echo "sizes of files and functions";  $(BIN)/python -m tools.length_report
	@echo "words of texts and documents";   $(BIN)/python -m tools.prose_check
	@echo "errors that texts show";         $(BIN)/python -m tools.laws.error_words
	@echo "skips and fixed sleeps of tests";  $(BIN)/python -m tools.laws.suite_law
	@echo "addresses and machine paths";   $(BIN)/python -m tools.address_check

fmt: setup ## sort imports, fix what ruff can fix
	@$(BIN)/ruff check --fix --quiet

bench: setup ## throughput and latency, sync against async, into out/ (DFS=hdfs, ENGINE=postgresql, ARGS="--rounds 5")
	@$(BIN)/python -m bench.run --dfs $(DFS) --engine $(ENGINE) $(ARGS)

bench-failover: setup ## from SIGKILL of the active to the first write at the other site (DFS=hdfs, ARGS="--rows 20000 --times 5")
	@$(BIN)/python -m bench.failover --dfs $(DFS) $(ARGS)

bench-hostile: setup ## what one hostile client does to everybody else (ARGS='--only "coded bombs" --seconds 15')
	@$(BIN)/python -m bench.hostile.run $(ARGS)

fuzz: setup ## the hot path against the plain routes, 40,000 requests of another seed each time (ARGS="--requests 400000 --seed 7")
	@$(BIN)/python -m tests.gateway.http.differential $(ARGS)

chaos: setup ## every row of the fault matrix on pairs of real processes behind Toxiproxy, with reports; needs Go once (ARGS="disk-full --runs 3")
	@$(BIN)/python -m chaos matrix $(ARGS)

simulate: setup ## the whole pair on virtual time, one seed after the other (ARGS="--seeds 100000 --seed 0 --minutes 60")
	@$(BIN)/python -m chaos simulate $(ARGS)

bugs: setup ## how many seeds the simulator needs to find each planted bug (ARGS="--bug NAME")
	@$(BIN)/python -m chaos bugs $(ARGS)

mutants: setup ## plants each mistake of tests/mutants/*.toml in a copy: which test and which seed find it (ARGS="--only segment --seeds 500")
	@$(BIN)/python -m tools.mutants $(ARGS)

simulate-coverage: setup ## docs/simulation-coverage.md: what the simulator runs of the product, and by name what it does not
	@$(BIN)/python -m tools.simulated_coverage $(ARGS)

story: setup ## a load of all flights lives through a lost site, a failover, a rejoin and a switchover back (DFS=hdfs)
	@$(BIN)/python -m tools.story --dfs $(DFS) $(ARGS)

audit: setup ## a pair under write load, and whether both its sites are equal, by Spark; needs Java 17 (ARGS="--dir DIR")
	@$(BIN)/python -m tools.audit_demo $(ARGS)

audit-story: setup ## four rows spoilt under a site's storage: compare finds these, repair restores them (ARGS="--writes-per-s 5000")
	@$(BIN)/python -m tools.audit_story $(ARGS)

log-story: setup ## faults planted in the logs of a pair: log-audit reports each with file and offset (ARGS="--copies 10")
	@$(BIN)/python -m tools.log_story $(ARGS)

postgres: setup ## a PostgreSQL on 127.0.0.1:5433 with a database for each site (DIR=demo, ARGS="--port 5434")
	@exec $(BIN)/python -m chaos postgres --dir $(DIR)/postgres $(ARGS)

hdfs: setup ## a real HDFS for each site on 127.0.0.1, needs Java 17 (DIR=demo, ARGS="--clusters 1")
	@exec $(BIN)/python -m chaos hdfs --dir $(DIR)/hdfs --clusters 2 $(ARGS)

wheels: setup ## both wheels and source archives, the same bytes for the same commit, into build/wheels (ARGS="--out DIR")
	@$(BIN)/python -m tools.packaging.wheels $(ARGS)

man: setup ## the manual pages of the command, into build/man: `man -l build/man/twinlog.1`
	@$(BIN)/python -m tools.packaging.man_pages build/man "$$(date +%F)"

docs: setup ## the documentation site into build/docs/site: every page of docs/, and the references made from the code
	@$(BIN)/python -m tools.docs_site

pictures: setup ## docs/page/: the tables, audits and the lost site on the operator's page; needs Chromium and Java 17 (ARGS="--out DIR")
	@$(BIN)/python -m tools.docs_site.page_pictures $(ARGS)

lock: setup ## pin the dependencies of both pyproject.toml again, with hashes (ARGS=--upgrade)
	@$(BIN)/uv $(COMPILE) --quiet $(ARGS) -o $(LOCK)
	@echo "$(LOCK) is new: commit it"

# One stamp: a second call looks at three dates and is done. `sync` also removes what is no longer pinned.
$(READY): $(LOCK) pyproject.toml twinlog/pyproject.toml Makefile
	@if [ -z "$(PYTHON)" ]; then \
	  echo "twinlog needs Python 3.11 or newer, and none of python3, python3.11 ... python3.14 is that." >&2; \
	  echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or say: make setup PYTHON=/path/to/python" >&2; \
	  exit 1; fi
	@if [ ! -x $(BIN)/python ]; then \
	  echo "creating $(VENV) with $$($(PYTHON) --version)"; \
	  $(PYTHON) -m venv --clear $(VENV) || { \
	    echo "$(PYTHON) cannot make a virtual environment (Debian, Ubuntu: apt-get install python3-venv)" >&2; \
	    rm -rf $(VENV); exit 1; }; fi
	@[ -x $(BIN)/uv ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@echo "installing the pinned dependencies"
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --require-hashes --build-constraints $(LOCK) $(LOCK)
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable ./twinlog --editable .
	@touch $(READY)
