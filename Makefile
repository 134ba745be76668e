# Every target works on a fresh clone with Python (3.11 or later) and make, nothing else:
# it makes the environment it needs, and makes it again only when pyproject.toml changes. With an empty
# VENV it makes none and installs nothing, but takes what PYTHON has: make test-gpu VENV= PYTHON=...

PYTHON ?= python3
# Test processes side by side. Kernels use threads of their own, so more is not always faster.
JOBS ?= 2
# More arguments for pytest: make test ARGS="-k softmax -x"
ARGS ?=
# What the library is tested with, `make bench` compares with, and `make test-packages` runs on.
# TORCH= leaves it out. Set pip's own options to choose another build of it.
TORCH ?= torch==2.13.0

VENV := .venv
TORCH_VENV := $(VENV:%=%-torch)
PACKAGES_VENV := .venv-packages
# What runs commands: the Python of an environment, or the one that is there.
RUN = $(if $(VENV),$(VENV)/bin/python,$(PYTHON))
TORCH_RUN = $(if $(VENV),$(TORCH_VENV)/bin/python,$(PYTHON))
# Kernels that processes of the tests import are found without an installation, too.
ifeq ($(VENV),)
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
endif
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-gpu test-packages check format bench clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV:%=%/.run)  ## Run the demonstration: kernels on NumPy arrays, checked and timed
	$(RUN) -m examples.demo

test: $(VENV:%=%/.test)  ## Run every test that needs no GPU, slow ones included
	$(RUN) -m pytest -n $(JOBS) -m "not gpu" $(ARGS)

test-gpu: $(TORCH_VENV:%=%/.test)  ## Run the tests that need a GPU; JOBS=8 of them share it
	$(TORCH_RUN) -m pytest -n $(JOBS) -m gpu $(ARGS)

test-packages: $(PACKAGES_VENV)/.run  ## Run published packages of Triton kernels, unmodified, on the CPU
	PACKAGE_SOURCES=$(PACKAGES_VENV)/sources $(PACKAGES_VENV)/bin/python -m pytest -p no:asyncio \
	  tests/packages
	$(PACKAGES_VENV)/bin/python tools/package_suites.py --directory $(PACKAGES_VENV)/sources \
	  --jobs $(JOBS) $(ARGS)

check: $(VENV:%=%/.dev)  ## Format, lint, types, layers, fast tests, sizes: run before each commit
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest -q tests/test_layers.py
	$(RUN) -m pytest -n $(JOBS) -m "not slow and not gpu" --hypothesis-profile=few \
	  $(ARGS)
	$(RUN) tools/size_report.py

format: $(VENV:%=%/.dev)  ## Format the sources and apply the safe fixes of the linter
	$(RUN) -m ruff check --fix --exit-zero .
	$(RUN) -m ruff format .

bench: $(TORCH_VENV:%=%/.test)  ## Measure beside torch: the GPU target where torch sees a GPU, else the CPU's
	@if $(TORCH_RUN) -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; \
	  then target=gpu; \
	  else target=cpu; echo "torch sees no GPU: measuring the CPU target"; fi; \
	  set -x; $(TORCH_RUN) benchmarks/$$target.py $(ARGS)

clean:  ## Remove environments, caches and build output
	rm -rf .venv .venv-torch .venv-packages build dist *.egg-info
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Environments. A stamp is written last, so an interrupted installation starts again.

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python ..." >&2; exit 1; }
	@$(PYTHON) -m venv $* || { rm -rf $*; echo "$(PYTHON) cannot make an environment:" \
	  "install its venv module, or name another one with PYTHON=..." >&2; exit 1; }

ifneq ($(VENV),)
$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[test]'
	$(if $(TORCH),$(VENV)/bin/python $(PIP_INSTALL) $(TORCH) ||) echo "tests that need torch are skipped"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[dev]'
	$(if $(TORCH),$(VENV)/bin/python $(PIP_INSTALL) $(TORCH) ||) echo "tests that need torch are skipped"
	@touch $@

# Its own environment: whether torch is there must not change what the tests see.
$(TORCH_VENV)/.test: pyproject.toml | $(TORCH_VENV)/bin/python
	$(TORCH_VENV)/bin/python $(PIP_INSTALL) --editable '.[ptxas,test]' $(TORCH)
	@touch $@
endif

# Also apart: packages find no Triton here but the alias, and nothing of theirs is ever vendored.
$(PACKAGES_VENV)/.run: pyproject.toml $(wildcard tests/packages/*.txt) | $(PACKAGES_VENV)/bin/python
	$(PACKAGES_VENV)/bin/python $(PIP_INSTALL) --editable '.[test]' $(TORCH) \
	  --requirement tests/packages/support.txt
	$(PACKAGES_VENV)/bin/python $(PIP_INSTALL) --no-deps --requirement tests/packages/kernels.txt
	$(PACKAGES_VENV)/bin/python tools/package_suites.py --directory $(PACKAGES_VENV)/sources --fetch
	@touch $@
