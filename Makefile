# `make quickstart` and `make test` need only Linux and Python 3.11 to 3.13, which $(PYTHON) names.

PYTHON ?= python3
BIN := .venv/bin
CONSTRAINTS ?= --constraint constraints.txt
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
.DEFAULT_GOAL := help

.PHONY: help quickstart test lint names docs lock clean

help:
	@echo "make quickstart   compare policies over recorded measurements, then search for a fast GEMM on this machine (two minutes)"
	@echo "make test         run the tests"
	@echo "make lint         ruff and mypy"
	@echo "make names        attributes and arguments in tests and studies that may have been renamed"
	@echo "make docs         build the documentation site: docs/_build/html/index.html"
	@echo "make lock         renew constraints.txt, the exact versions that are installed"
	@echo "make clean        remove .venv and caches, but keep results/"

# It is installed again when pyproject.toml or the versions change. `make CONSTRAINTS= ...` installs the newest versions.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "searchlab needs Python 3.11 to 3.13, not " + sys.version.split()[0] + "; name another one, for example: make PYTHON=python3.12 quickstart")'
	@echo "installing searchlab and all that it needs into .venv, which takes a minute or two"
	$(PYTHON) -m venv .venv
	$(INSTALL) --upgrade "pip>=25.1"
	$(INSTALL) $(CONSTRAINTS) --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	$(INSTALL) $(CONSTRAINTS) --group dev
	@touch $@

quickstart: .venv/installed
	@echo "1 of 2: does xgb find a fast program sooner than random search? 360 runs over recorded measurements"
	$(BIN)/searchlab run studies/quickstart.toml --jobs 2
	@echo "2 of 2: a search on this machine, whose programs are compiled, checked and timed; is the fastest one fast?"
	$(BIN)/searchlab tune gemm:512x512x512 --space guided-gemm --policy xgb --trials 64 --log results/gemm.jsonl
	$(BIN)/searchlab verify results/gemm.jsonl
	@echo "the comparison of the policies, as a page: results/quickstart/report/report.html"

# One more process than there are cores, because tests also wait for the processes that they start.
test: .venv/installed-dev
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --maxprocesses 4 --dist loadfile

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

NAMES = $(BIN)/mypy --config-file= --explicit-package-bases --check-untyped-defs --ignore-missing-imports
names: .venv/installed-dev
	-MYPYPATH=.:spaces:policies:costmodels $(NAMES) tests | grep -E "attr-defined|call-arg"
	-MYPYPATH=.:spaces:policies:costmodels:studies:studies/benchmarks $(NAMES) studies | grep -E "attr-defined|call-arg"

.venv/installed-docs: .venv/installed
	$(INSTALL) $(CONSTRAINTS) --group docs
	@touch $@

docs: .venv/installed-docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html docs docs/_build/html

lock:
	rm -rf .venv
	$(MAKE) CONSTRAINTS= .venv/installed-dev .venv/installed-docs
	echo "# The exact versions with which searchlab is tested; 'make lock' renews them." > constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | grep == >> constraints.txt
	touch .venv/installed .venv/installed-dev .venv/installed-docs

clean:
	rm -rf .venv build dist docs/_build docs/generated *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
