# Two commands do all the set-up on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test lint format test-slow bench clean
help:
	@echo "make demo       install, train on long-tailed digits, show a table and write a report"
	@echo "make test       install, lint, type-check, run the tests"
	@echo "make test-slow  the tests that take minutes"
	@echo "make bench      time the mathematics, compare the methods (benchmarks/results/)"

$(BIN)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev,all]"
	@touch $@

demo: $(BIN)/.ready
	$(BIN)/csst demo --out runs/demo

lint: $(BIN)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(BIN)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(BIN)/.ready
	$(BIN)/python -m pytest -m slow

bench: $(BIN)/.ready
	OMP_NUM_THREADS=2 $(BIN)/python benchmarks/maths.py
	$(BIN)/python benchmarks/quick.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
