# All set-up happens in .venv; `make run` on a fresh machine is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without an NVIDIA GPU the CPU build of torch is pinned; with one, torch's own choice is right.
CONSTRAINTS := $(if $(shell command -v nvidia-smi 2>/dev/null),,-c constraints-cpu.txt)

.PHONY: run test test-long selftest check clean

run: $(VENV)/.run
	$(BIN)/python test_agent.py

test: $(VENV)/.test check
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-long: $(VENV)/.test
	$(BIN)/python -m pytest -m "long and not gpu" -n 2 --dist worksteal

selftest: $(VENV)/.run
	$(BIN)/python -m ncu_server selftest

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV):
	$(PYTHON) -m venv $@

$(VENV)/.run: requirements.txt constraints-cpu.txt | $(VENV)
	$(BIN)/pip install -q $(CONSTRAINTS) -r requirements.txt
	touch $@

# Without byte code, most of which no test needs: that takes longer than the download.
$(VENV)/.test: requirements-dev.txt requirements.txt constraints-cpu.txt | $(VENV)
	$(BIN)/pip install -q --no-compile $(CONSTRAINTS) -r requirements-dev.txt
	touch $(VENV)/.run $@

clean:
	rm -rf $(VENV)
