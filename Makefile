# Everything happens in .venv, which is made on first use. Choose the interpreter with `make PYTHON=python3.12 ...`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint bench clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## Install the library, the study and the tools for working on them into .venv

demo: $(VENV)/.library ## Install what the library needs, and learn a pendulum from video (about three minutes)
	@$(BIN)/rpgssm demo --overwrite

test: $(VENV)/.dev ## Run the tests of library and study, but for the slow ones
	@$(BIN)/python -m pytest

test-slow: $(VENV)/.dev ## Run all tests, the slow ones too
	@$(BIN)/python -m pytest -m "slow or not slow"

lint: $(VENV)/.dev ## Check style, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

bench: $(VENV)/.dev ## Measure the speed of the core and of training steps
	@$(BIN)/rpgssm-study speed core
	@$(BIN)/rpgssm-study speed train

clean: ## Remove .venv, caches and build products
	rm -rf $(VENV) build dist study/dist .pytest_cache .ruff_cache .hypothesis
	find src tests study -type d -name __pycache__ -prune -exec rm -rf {} +

# The empty files .python, .library and .dev record which step of the installation is done.

$(VENV)/.python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || { \
		echo "rpgssm needs Python 3.11 or newer, and '$(PYTHON)' is older or missing." >&2; \
		echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.library: pyproject.toml | $(VENV)/.python
	@echo "Installing rpgssm into $(VENV) (once; this takes a few minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml study/pyproject.toml | $(VENV)/.python
	@echo "Installing rpgssm, its study and the development tools into $(VENV) (once; this takes a few minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" -e "study[test]"
	@touch $(VENV)/.library $@
