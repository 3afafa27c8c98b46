# Everything a fresh machine needs is Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
SOURCES := src tests benchmarks examples scripts
SITE ?= build/site
INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-fast test-slow test-oldest test-newest lint lint-workflows bench bench-quick docs dist \
	check-release audit-dependencies clean

demo: $(VENV)/.report
	$(BIN)/dpsco demo

test: lint test-fast

# The fast suite, and the share of the library's lines that it runs (compiled code has none).
test-fast: $(VENV)/.test
	@mkdir -p build
	$(BIN)/python -m slipcover --source src/dpsco --omit '*/clipping/kernels/*,*/release/long_vectors_compiled.py,*/rows/compiled_rows.py' \
		--json --out build/coverage.json -m pytest -W ignore::pytest.PytestAssertRewriteWarning -q -n $(WORKERS)
	$(BIN)/python scripts/print_coverage.py build/coverage.json

test-slow: $(VENV)/.slow
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "slow or proof"

# The fast suite on the oldest versions that pyproject.toml declares, and on the newest that it allows.
# Without JAX (0.10 needs a newer numpy than the library does) and PyTorch (older wheels bring several GB of CUDA).
OLDEST := accounting dask files report sklearn test
test-oldest: .venv-oldest/.done
	.venv-oldest/bin/pytest -q -n $(WORKERS)

test-newest: .venv-newest/.done
	.venv-newest/bin/python $(INSTALL) --upgrade --upgrade-strategy eager --editable '.[accounting,report,test,test-networks]'
	.venv-newest/bin/pytest -q -n $(WORKERS)

lint: $(VENV)/.test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Schemas are part of the package that checks them: no network.
lint-workflows: $(VENV)/.lint-workflows
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms \
		$(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --offline --quiet .github

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# Every benchmark at a small size: shows that they run, measures nothing.
bench-quick: $(VENV)/.bench
	$(BIN)/python -m benchmarks --quick

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir "$(abspath $(SITE))"

# A source archive, and the wheel made from it; the README on the index has no relative link.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python scripts/check_dist.py dist

# make check-release TAG=v0.2.0: do the tag, the version, the changelog and the citation agree?
check-release:
	$(PYTHON) scripts/check_release.py $(TAG)

# Asks PyPI for known vulnerabilities of what is installed: needs a network.
audit-dependencies: $(VENV)/.test
	$(BIN)/python $(INSTALL) pip-audit
	$(BIN)/python scripts/audit_dependencies.py --online

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest build dist demo .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache

# One stamp for each set of extras; a changed pyproject.toml installs again.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.report: pyproject.toml | $(BIN)/python
	$(BIN)/python $(INSTALL) --editable '.[report]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python $(INSTALL) --editable '.[lint,report,test,test-networks]'
	@touch $@

$(VENV)/.slow: pyproject.toml | $(VENV)/.test
	$(BIN)/python $(INSTALL) --editable '.[accounting,fuzz]'
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.test
	$(BIN)/python $(INSTALL) --editable '.[accounting]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python $(INSTALL) --editable '.[docs]'
	@touch $@

$(VENV)/.dist: pyproject.toml | $(BIN)/python
	$(BIN)/python $(INSTALL) --editable '.[dist]'
	@touch $@

$(VENV)/.lint-workflows: pyproject.toml | $(BIN)/python
	$(BIN)/python $(INSTALL) --editable '.[lint-workflows]'
	@touch $@

.venv-oldest/.done: pyproject.toml scripts/oldest_dependencies.py
	$(PYTHON) -m venv --clear .venv-oldest
	$(PYTHON) scripts/oldest_dependencies.py $(OLDEST) > .venv-oldest/requirements.txt
	.venv-oldest/bin/python $(INSTALL) --requirement .venv-oldest/requirements.txt
	.venv-oldest/bin/python $(INSTALL) --no-deps --editable .
	@touch $@

.venv-newest/.done: pyproject.toml
	$(PYTHON) -m venv --clear .venv-newest
	@touch $@
