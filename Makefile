# What there is to do here. Plain `make` lists it. Works with GNU Make 3.81, which macOS has.
ifeq ($(wildcard pyproject.toml),)
$(error Run make in the folder of the project, or: make -C FOLDER)
endif
ifneq ($(filter reset,$(MAKECMDGOALS)),)
ifeq ($(strip $(P)),)
$(error Which puzzle? For example: make reset P=4)
endif
endif

VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/installed
PINS := tests/pins/stack.txt
# On Linux this is the build with CUDA, some GB. For the small one: TORCH="torch --index-url ...", as pytorch.org says.
TORCH := torch
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check
# Four files of tests at a time, on two processors as well: the longest ones mostly wait for what they start.
WORKERS := 4
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PYTEST := $(RUN) -m pytest --dist loadfile --no-loadscope-reorder --numprocesses
# Tests start many processes, and each would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE
BROWSER_STAMP := $(VENV)/installed-browser
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	{ $$name -c "$(NEW_ENOUGH)"; } 2>/dev/null && echo $$name && break; done)

# An environment whose Python is gone or broken (its Python was updated, its making interrupted) is made anew.
ifneq ($(shell { $(RUN) -c "import pip; print('works')"; } 2>/dev/null),works)
BROKEN := yes
.PHONY: $(STAMP)
endif

.DEFAULT_GOAL := help
.PHONY: help setup lab reset test quick test-all browser real colab lite site wheel build check-built lint bench papers mutants pins ci

help: ## list what there is to do
	@echo "Usage: make TARGET [PYTHON=python3.12]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

lab: $(STAMP) ## open JupyterLab on your own copies of the puzzles (LAB=--no-browser and the like)
	@$(RUN) -m lib lab puzzles/mine $(LAB)

reset: $(STAMP) ## make reset P=4: keep your puzzle 4 under another name, start again from the blank
	@$(RUN) -m lib reset "$(P)" puzzles/mine

setup: $(STAMP) ## make the environment in .venv, nothing else
	@echo "The environment in $(VENV) is ready."

$(STAMP): pyproject.toml $(PINS)
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or later was found. Install one, or say where it is:" \
		"make setup PYTHON=/path/to/python3.12"; exit 1; } >&2
	@"$(PYTHON)" -c "" || { echo "PYTHON=$(PYTHON) does not run." >&2; exit 1; }
	@"$(PYTHON)" -c "$(NEW_ENOUGH)" || { echo "Python 3.11 or later is needed, $(PYTHON) is older." \
		"Name another: make setup PYTHON=python3.12"; exit 1; } >&2
	@"$(PYTHON)" -c "import ensurepip, venv" 2>/dev/null || { \
		package=$$("$(PYTHON)" -c "import sys; print('python%d.%d-venv' % sys.version_info[:2])"); \
		echo "$(PYTHON) has no venv module. On Debian and Ubuntu: sudo apt install $$package"; exit 1; } >&2
	@echo "Filling $(VENV), which takes some minutes the first time ..."
	$(if $(BROKEN),@"$(PYTHON)" -m venv --clear $(VENV))
	@$(PIP) -c $(PINS) --editable ".[dev]" || { \
		echo "THE TESTED VERSIONS ($(PINS)) CANNOT BE HAD HERE: trying the newest ones instead." >&2; \
		$(PIP) --editable ".[dev]"; }
	@touch $(STAMP)

test: $(STAMP) ## run the tests but the slowest, and of tests with many cases a part: always the same
	@SLOW_TESTS=none $(PYTEST) $(WORKERS)

quick: $(STAMP) ## a third of the tests, in a minute or two: no processes, no browser, nothing long, a tenth of many cases
	@SLOW_TESTS=none $(PYTEST) $(PROCESSORS) -m "not process and not browser and not long"

test-all: site ## all of them, the site with the whole course in the browser, and the notebooks on the newest packages
	@SLOW_TESTS=all $(PYTEST) $(WORKERS)
	@$(RUN) -m tools.pythons

browser: $(BROWSER_STAMP) ## have a headless Chromium, with which `make test` looks at the pictures
	@$(RUN) -m tests.browser 2>/dev/null || .ci/browser

$(BROWSER_STAMP): $(STAMP)
	@echo "Installing Playwright and axe-core into $(VENV) ..."
	@$(PIP) -c $(PINS) --editable ".[browser]" || { \
		echo "NO BROWSER: pip could not install the extra 'browser' (Playwright, axe-core)."; exit 1; } >&2
	@touch $(BROWSER_STAMP)

real: $(STAMP) ## have PyTorch, for run(..., engine="local") and "processes" (TORCH="torch==2.13.0" for a version)
	@$(RUN) -c "import torch" 2>/dev/null || $(PIP) $(TORCH) || { \
		echo "NO TORCH: pip could not install $(TORCH). pytorch.org tells what to install here" >&2; exit 1; }
	@$(PIP) -c $(PINS) cloudpickle numpy

colab: $(STAMP) ## notebooks for Colab, each complete by itself, in dist/
	@$(RUN) -m solutions.build.elsewhere.colab

lite: $(STAMP) ## a site that plays the puzzles in the browser alone, in dist/lite, and a test of it
	@$(PIP) -c $(PINS) --editable ".[lite]"
	@$(RUN) -m solutions.build.elsewhere.lite
	@SLOW_TESTS=none $(RUN) -m pytest -q tests/test_lite.py

site: $(STAMP) ## the gallery, the course in the browser and these pages, in dist/site, for any server of static files
	@$(PIP) -c $(PINS) --editable ".[site]"
	@$(RUN) -m solutions.build.elsewhere.site
	@SLOW_TESTS=none $(RUN) -m pytest -q tests/test_site.py

wheel: $(STAMP) ## what can be installed: a wheel and a source distribution, in dist/
	@$(RUN) -m hatchling build -d dist

build: $(STAMP) ## make puzzles/*.ipynb and the tables in lib and README.md from their sources
	@$(RUN) -m solutions.build

check-built: $(STAMP) ## fail where these differ from what their sources make
	@$(RUN) -m solutions.build --check

lint: $(STAMP) ## ruff and mypy
	@failed=0; for tool in "ruff check" "ruff format --check" mypy; do \
		$(RUN) -m $$tool || failed=1; done; exit $$failed

bench: $(STAMP) ## microseconds per event of runs and pictures, beside their floors (some minutes)
	@$(RUN) -m tools.bench
	@$(RUN) -m tools.bench_drawing
	@$(RUN) -m tools.bench_engines

papers: $(STAMP) ## figures that others have published beside ours: tables, and papers.csv and papers.svg in dist/
	@$(RUN) -m tools.papers

mutants: $(STAMP) ## how many small mistakes in lib the tests notice (an hour; MUTANTS="--count 30 --only lib.machine.network")
	@$(RUN) -m tools.mutants $(MUTANTS)

pins: $(STAMP) ## take the newest versions that are allowed, and note them as those to be tested
	@$(PIP) --upgrade --upgrade-strategy eager --editable ".[dev,browser,site]"
	@{ sed -n 1p $(PINS); $(RUN) -m pip freeze --exclude-editable --disable-pip-version-check; } > $(PINS).new
	@mv $(PINS).new $(PINS)

ci: ## all that must hold before a change is merged
	@.ci/run
