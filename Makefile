# Everything a fresh machine needs is Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
SOURCES := src tests benchmarks examples scripts

.PHONY: demo test test-slow lint bench docs audit-dependencies clean

demo: $(VENV)/.report
	$(BIN)/dpsco demo

test: lint
	$(BIN)/pytest -q -n $(WORKERS)

test-slow: $(VENV)/.slow
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "slow or proof"

lint: $(VENV)/.test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

bench: $(VENV)/.report
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

# Asks PyPI for known vulnerabilities of what is installed: needs a network.
audit-dependencies: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/python scripts/audit_dependencies.py --online

clean:
	rm -rf $(VENV) build demo .mypy_cache .pytest_cache .ruff_cache .hypothesis

# One stamp for each set of extras; a changed pyproject.toml installs again.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.report: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[report]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[report,test]'
	@touch $@

$(VENV)/.slow: pyproject.toml | $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[accounting,fuzz]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@
