# `make demo` and `make test` are all a newcomer needs; see README.md.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
EXTRAS := cpu,demo,test,dev
STAMP  := $(VENV)/.installed

.PHONY: install demo test check book lab clean help
.DEFAULT_GOAL := help

help: ## say what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/'

install: $(STAMP) ## make .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "» installing into $(VENV); a few minutes the first time, about 2.6 GB"
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

demo: $(STAMP) ## train toys, extract, evaluate beside baselines, build the book
	$(BIN)/qwen3nb demo

test: $(STAMP) ## run all tests, as many at once as there are cores
	$(BIN)/python -m pytest -n auto --maxprocesses 8

check: $(STAMP) ## style, types, notebooks without outputs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/nbstripout --verify --keep-id --extra-keys "metadata.papermill cell.metadata.papermill" notebooks/*.ipynb

book: $(STAMP) ## build the book from whatever results there are, strictly
	$(BIN)/qwen3nb book

lab: $(STAMP) ## open the notebooks
	$(BIN)/jupyter lab --notebook-dir=notebooks

clean: ## remove what a build left; results, runs and the environment stay
	rm -rf _build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find qwen3nb tests -name __pycache__ -type d -prune -exec rm -rf {} +
