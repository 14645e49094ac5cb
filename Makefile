# All set-up happens in .venv, by set_up.py; `make run` on a fresh machine is enough. `make run PYTHON=python3.12` names a Python.
# `make test PART=rag` runs one part's tests (kernel_agent, ncu_server, rag); `make test-fast` those that start no process.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests start hundreds of processes: without bytecode each compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-fast test-long selftest check docs clean

run: $(VENV)/.run
	$(BIN)/python test_agent.py

test: $(VENV)/.test check
	$(BIN)/python -m pytest -n 2 --dist worksteal $(if $(PART),tests/$(PART))

test-fast: $(VENV)/.test
	$(BIN)/python -m pytest -m "fast and not gpu and not long and not selftest" -n 2 --dist worksteal

test-long: $(VENV)/.test
	$(BIN)/python -m pytest -m "long and not gpu" -n 2 --dist worksteal

selftest: $(VENV)/.run
	$(BIN)/python -m ncu_server selftest

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.test
	$(BIN)/python -m docs.generate

$(VENV)/.run: set_up.py requirements.txt
	$(PYTHON) set_up.py $(VENV)
	touch $@

$(VENV)/.test: set_up.py requirements-dev.txt requirements.txt
	$(PYTHON) set_up.py $(VENV) --dev
	touch $(VENV)/.run $@

clean:
	rm -rf $(VENV)
