# Start with `make demo` and `make test`; see README.md.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
EXTRAS := book,cpu,demo,ray,test,dev
STAMP  := $(VENV)/.installed

# Else every program would compile what it imports of the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test check book nightly lab clean help
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/'

install: $(STAMP) ## create .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "» installing into $(VENV): 3.2 GB, with CUDA about 7 GB; a few minutes"
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@# On all cores, unlike pip; some packages hold files that are not for this Python.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

demo: $(STAMP) ## train toy models, extract, evaluate next to baselines, build the book
	$(BIN)/qwen3nb demo

test: $(STAMP) ## run all tests in parallel
	$(BIN)/python -m pytest -n auto --maxprocesses 8

check: $(STAMP) ## check style, types, and that notebooks have no outputs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/nbstripout --verify --keep-id --extra-keys "metadata.papermill cell.metadata.papermill" notebooks/*.ipynb notebooks/guide/*.ipynb

book: $(STAMP) ## build the book from the current results, in strict mode
	$(BIN)/qwen3nb book

nightly: $(STAMP) ## after the demo: find numbers of its book, and of the tier full, that disagree; try every fault
	$(BIN)/python -m benchmarks.agreement .
	.ci/rehearse
	.ci/faults

lab: $(STAMP) ## open the notebooks
	$(BIN)/jupyter lab --notebook-dir=notebooks

clean: ## remove build artifacts; keep results, runs and the environment
	rm -rf _build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find qwen3nb tests -name __pycache__ -type d -prune -exec rm -rf {} +
