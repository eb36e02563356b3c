# The same few verbs on a laptop and in CI. `make help` lists them.
PYTHON ?= python3
export PYTHON

DEV := .venv
SERVING := .venv-serving
INFERENCE := .venv-inference
PACKAGES := data_contracts serving tasks flows deployments benchmarks
SOURCES := $(shell find $(PACKAGES) -type f -not -path '*/__pycache__/*') pyproject.toml
PASSLINE := $(DEV)/bin/passline

.DEFAULT_GOAL := help
.PHONY: help setup demo up down test test-quick check format bench lock clean

help:  ## List the verbs.
	@awk -F ':.*## ' '/^[a-z-]+:.*##/ {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## Make the three environments from the locks.
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=line $(DEV)/.made $(SERVING)/.made $(INFERENCE)/.made

# Training and development: everything, with the project as it lies here.
$(DEV)/.made: requirements/dev.txt requirements/install.sh pyproject.toml
	@requirements/install.sh dev $(DEV)
	@$(DEV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable . 2>>var/log/setup-dev.log
	@touch $@

dist/.made: $(DEV)/.made $(SOURCES)
	@mkdir -p var/log && rm -rf dist && $(DEV)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --wheel-dir dist . 2>>var/log/setup-dev.log
	@touch $@

$(SERVING)/.locked: requirements/serving.txt requirements/install.sh
	@requirements/install.sh serving $(SERVING)
	@touch $@

$(INFERENCE)/.locked: requirements/inference.txt requirements/install.sh
	@requirements/install.sh inference $(INFERENCE)
	@touch $@

# The inference side gets the built package, never the working tree.
$(SERVING)/.made $(INFERENCE)/.made: %/.made: %/.locked dist/.made
	@mkdir -p var/log && $*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall dist/passline-*.whl 2>>var/log/setup-package.log
	@touch $@

demo: setup  ## Run the main job on this machine: data, training, gates, promotion, inspection.
	@$(PASSLINE) demo

up: setup  ## Start the local stack.
	@$(PASSLINE) up

down:  ## Stop the local stack.
	@if [ -x $(PASSLINE) ]; then $(PASSLINE) down; else echo "nothing to stop: there is no $(DEV)"; fi

test: setup  ## Run all tests.
	@$(DEV)/bin/python -m pytest

test-quick: setup  ## Run the tests that take less than a minute together.
	@$(DEV)/bin/python -m pytest -m "not slow"

check: $(DEV)/.made  ## Lint, types, import contracts.
	@$(DEV)/bin/ruff check .
	@$(DEV)/bin/ruff format --check .
	@$(DEV)/bin/mypy
	@$(DEV)/bin/lint-imports --no-cache

format: $(DEV)/.made  ## Format the code.
	@$(DEV)/bin/ruff check --fix .
	@$(DEV)/bin/ruff format .

bench: setup  ## Measure the claims; JSON goes to var/bench/.
	@for name in pipeline serving start batching engines gpu fuzz; do $(PASSLINE) bench $$name || exit 1; done

lock:  ## Re-make the hashed locks from requirements/*.in (needs uv).
	@requirements/lock.sh

clean: down  ## Stop the stack and remove environments, builds and state.
	@rm -rf $(DEV) $(SERVING) $(INFERENCE) dist var
