# Every target works on a fresh clone with Python (3.11 or later) and make, nothing else:
# it makes the environment it needs, and makes it again only when pyproject.toml changes.

PYTHON ?= python3
# Test processes side by side. Kernels use threads of their own, so more is not always faster.
JOBS ?= 2
# More arguments for pytest: make test ARGS="-k softmax -x"
ARGS ?=
# What `make bench` compares with and `make test-packages` runs on; nothing else installs it.
# make bench TORCH= leaves it out. Set pip's own options to choose another build of it.
TORCH ?= torch==2.13.0

VENV := .venv
BENCH_VENV := .venv-bench
PACKAGES_VENV := .venv-packages
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-gpu test-packages check format bench clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.run  ## Run the demonstration: kernels on NumPy arrays, checked and timed
	$(VENV)/bin/python -m examples.demo

test: $(VENV)/.test  ## Run every test that needs no GPU, slow ones included
	$(VENV)/bin/python -m pytest -n $(JOBS) -m "not gpu" $(ARGS)

test-gpu: $(VENV)/.test  ## Run the tests that need a GPU
	$(VENV)/bin/python -m pytest -m gpu $(ARGS)

test-packages: $(PACKAGES_VENV)/.run  ## Run published packages of Triton kernels, unmodified, on the CPU
	PACKAGE_SOURCES=$(PACKAGES_VENV)/sources $(PACKAGES_VENV)/bin/python -m pytest -p no:asyncio \
	  tests/packages
	$(PACKAGES_VENV)/bin/python tools/package_suites.py --directory $(PACKAGES_VENV)/sources \
	  --jobs $(JOBS) $(ARGS)

check: $(VENV)/.dev  ## Format, lint, types, layers, fast tests, sizes: run before each commit
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest -q tests/test_layers.py
	$(VENV)/bin/python -m pytest -n $(JOBS) -m "not slow and not gpu" $(ARGS)
	$(VENV)/bin/python tools/size_report.py

format: $(VENV)/.dev  ## Format the sources and apply the safe fixes of the linter
	$(VENV)/bin/ruff check --fix --exit-zero .
	$(VENV)/bin/ruff format .

bench: $(BENCH_VENV)/.run  ## Measure beside torch: the GPU target where torch sees a GPU, else the CPU's
	@if $(BENCH_VENV)/bin/python -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; \
	  then target=gpu; \
	  else target=cpu; echo "torch sees no GPU: measuring the CPU target"; fi; \
	  set -x; $(BENCH_VENV)/bin/python benchmarks/$$target.py $(ARGS)

clean:  ## Remove environments, caches and build output
	rm -rf .venv .venv-bench .venv-packages build dist *.egg-info
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Environments. A stamp is written last, so an interrupted installation starts again.

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python ..." >&2; exit 1; }
	@$(PYTHON) -m venv $* || { rm -rf $*; echo "$(PYTHON) cannot make an environment:" \
	  "install its venv module, or name another one with PYTHON=..." >&2; exit 1; }

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[test]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[dev]'
	@touch $@

# Its own environment: whether torch is there must not change what the tests see.
$(BENCH_VENV)/.run: pyproject.toml | $(BENCH_VENV)/bin/python
	$(BENCH_VENV)/bin/python $(PIP_INSTALL) --editable . $(TORCH)
	@touch $@

# Also apart: packages find no Triton here but the alias, and nothing of theirs is ever vendored.
$(PACKAGES_VENV)/.run: pyproject.toml $(wildcard tests/packages/*.txt) | $(PACKAGES_VENV)/bin/python
	$(PACKAGES_VENV)/bin/python $(PIP_INSTALL) --editable '.[test]' $(TORCH) \
	  --requirement tests/packages/support.txt
	$(PACKAGES_VENV)/bin/python $(PIP_INSTALL) --no-deps --requirement tests/packages/kernels.txt
	$(PACKAGES_VENV)/bin/python tools/package_suites.py --directory $(PACKAGES_VENV)/sources --fetch
	@touch $@
