# make reproduce   install into .venv, run the study at quick size (15 minutes on two cores), report
# make test        install, then linters, types, import order and the fast tests (under 5 minutes)
# make test-slow   browser, killed processes and other heavy tests
# make results     everything in results/ from nothing: hours
# make results-check  the numbers and figures of README and results/, from the committed tables
# make tune        the learning rates that quick and standard use, found again

PYTHON ?= python3
BIN := .venv/bin
# One thread a process: on matrices this small it is faster, and results do not depend on it.
export OMP_NUM_THREADS := 1

.PHONY: reproduce test test-slow results results-check tune clean

reproduce: .venv/installed
	$(BIN)/poslens reproduce --out runs/quick

test: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not slow" -n 2 --dist loadfile

test-slow: .venv/installed-dev
	$(BIN)/pytest -m slow

results: .venv/installed
	studies/run.sh

results-check: .venv/installed
	$(BIN)/python studies/render.py --check

tune: .venv/installed
	$(BIN)/poslens tune --out runs/tune

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,cluster]"
	touch $@

clean:
	rm -rf .venv build dist
