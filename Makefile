# What a person types after `git clone`. Everything is installed into .venv, once, and again when pyproject.toml changes.
SHELL  := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN    := .venv/bin
SPACE  := search_spaces/muon.yaml

export RAY_USAGE_STATS_ENABLED := 0
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: tune test test-slow check bench cluster-files

# A study that exists is never written over: a second `make tune` gets the next free folder (muon-2, muon-3, ...).
tune: .venv/installed-demo
	@study=studies/$(basename $(notdir $(SPACE))); folder=$$study; n=2; \
	while [ -e "$$folder" ]; do folder=$$study-$$n; n=$$((n + 1)); done; \
	set -x; $(BIN)/golfray tune $(SPACE) --study-dir "$$folder"

# Two at a time, each file by one of the two since its fixtures are costly; PYTEST_ARGS="-n 0": one after another.
test: .venv/installed-dev
	$(BIN)/pytest -m "not slow" -n 2 --dist loadfile --durations=20 --durations-min=0.5 $(PYTEST_ARGS)

# What starts Ray has the machine for itself, one test after another; the rest runs two at a time. pytest says 5 where no
# test was collected: said aloud here, and no failure.
test-slow: .venv/installed-dev
	@for part in "-n 2 --dist loadfile --ignore=tests/cli --ignore=tests/cluster" "tests/cli tests/cluster"; do \
	(set -x; $(BIN)/pytest -m slow --durations=20 --durations-min=0.5 $$part $(PYTEST_ARGS)) || { status=$$?; \
	[ $$status -eq 5 ] || exit $$status; echo "make test-slow: no such test is marked slow, so nothing ran"; }; \
	done

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed-dev
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/data.py

# What clusters/*.yaml bring to every node: the code of this commit, and one token for all of them.
cluster-files:
	@git diff --quiet HEAD || echo "make cluster-files: what is not committed stays here" >&2
	git archive --format=tar.gz --output=clusters/golfray.tar.gz HEAD golfray search_spaces clusters pyproject.toml README.md LICENSE Makefile
	@[ -s ~/.ray/auth_token ] || (umask 077 && mkdir -p ~/.ray && \
	$(PYTHON) -c 'import secrets; print(secrets.token_hex(32), end="")' > ~/.ray/auth_token)

# Making the environment again over an old one is harmless, and mends one whose making was interrupted.
.venv/installed-demo: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --editable ".[codecs,demo]"
	@touch $@

.venv/installed-dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --editable ".[dev]"
	@touch .venv/installed-demo $@
