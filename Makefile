# Two commands do all the set-up on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test test-slow test-browser docs docs-output coverage package torture fuzz soak mutants results-check lint format bench clean
help:
	@echo "make demo       install, train on long-tailed digits, show a table and write a report"
	@echo "make test       install, lint, type-check, run the tests"
	@echo "make test-slow  the tests that take long: effects over seeds, kills, torchrun, examples as they stand"
	@echo "make test-browser  open the report in a real Chromium, installing it where that is possible"
	@echo "make docs       build the documentation into site/, without a warning, and check its links"
	@echo "make docs-output  write into the tutorials what their blocks print now"
	@echo "make coverage   the tests with the lines that they reach"
	@echo "make package    build wheel and sdist, install each into an empty environment and run csst demo there, also with the oldest versions"
	@echo "make torture    kill, stop and damage training many times and compare with an undisturbed run (long)"
	@echo "make fuzz       a million objective sentences and many damaged files (long)"
	@echo "make soak       ten thousand training steps and a thousand fits in one process, with flat memory (long)"
	@echo "make mutants    put small faults into the code, one at a time, and see whether a test notices (long)"
	@echo "make results-check  list the pages of benchmarks/results that are older than the code they measure"
	@echo "make bench      time the mathematics and a step (benchmarks/results/)"

$(BIN)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $@

$(BIN)/.ready-dev: $(BIN)/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev,all]"
	@touch $@

demo: $(BIN)/.ready
	$(BIN)/csst demo --out runs/demo

lint: $(BIN)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(BIN)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# One process: two that share a core take twice the CPU time and end hardly sooner. PYTEST_ADDOPTS="-n 4" uses four cores.
test: lint
	$(BIN)/python -m pytest

test-slow: $(BIN)/.ready-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

test-browser: $(BIN)/.ready-dev
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && apt-get install -y -q chromium; } || \
	  echo "no Chromium here, and it cannot be installed without root and apt-get: the tests will be skipped"
	$(BIN)/python -m pytest -m browser -rs tests/report

$(BIN)/.ready-docs: $(BIN)/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs,tracking]"
	@touch $@

docs: $(BIN)/.ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/check_site.py site

docs-output: $(BIN)/.ready-dev
	$(BIN)/python docs/run_pages.py

coverage: $(BIN)/.ready-dev
	$(BIN)/python -m pytest --cov=csst --cov-report=term:skip-covered --cov-report=html

package: $(BIN)/.ready-dev
	$(BIN)/python -m pytest -m package -o addopts= tests/test_package.py

torture: $(BIN)/.ready-dev
	$(BIN)/python -W ignore -m benchmarks.quality.torture

fuzz: $(BIN)/.ready-dev
	$(BIN)/python -m benchmarks.quality.fuzz

soak: $(BIN)/.ready-dev
	$(BIN)/python -m benchmarks.quality.soak

mutants: $(BIN)/.ready-dev
	$(BIN)/python -W ignore -m benchmarks.quality.mutants

results-check:
	$(PYTHON) -m benchmarks.results_check

bench: $(BIN)/.ready
	OMP_NUM_THREADS=2 $(BIN)/python -m benchmarks.speed.maths
	$(BIN)/python -m benchmarks.speed.speed

clean:
	rm -rf $(VENV) site htmlcov .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
