# Everything needs Python 3.11 or newer, make and git, and nothing else. `make help` lists the targets.

PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
# `make test PYTHON=python3.13` has a venv of its own, beside the one for development.
VENV := .venv$(if $(filter command,$(firstword $(origin PYTHON))),-$(or $(shell \
	$(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'),$(error PYTHON=$(PYTHON) does not run)))
BIN := $(VENV)/bin

# What is installed, and from which pyproject.toml: newer stamps mean that there is nothing to do.
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

# Some containers set this. Every process of a test would then compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test pythons lint check bench real-model faults simulate diagrams captures mutants coverage site wheel sbom vsix clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

venv: $(INSTALLED_DEV) ## set up .venv with everything that development needs

demo: $(INSTALLED) ## play a conversation with a scripted model; asks at a terminal, approves elsewhere
	@if [ -t 0 ]; then $(BIN)/app-server demo $(ARGS); else $(BIN)/app-server demo --yes $(ARGS); fi

# Tests of processes run the built wheel, which they install in $(VENV)/installed: tests/support/installed.py.
test: $(INSTALLED_DEV) ## run the tests (ARGS="-k sandbox" to choose)
	@$(BIN)/python -m pytest -q -n auto --dist worksteal $(ARGS)

pythons: ## run the tests with every Python from 3.11 on that is installed, each in a venv of its own
	@for minor in 11 12 13 14; do \
		for python in python3.$$minor "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.$$minor.*/bin/python3; do \
			"$$python" -c '' 2>/dev/null || continue; \
			echo "== $$("$$python" --version)"; \
			$(MAKE) --no-print-directory test PYTHON="$$python" || failed="$$failed 3.$$minor"; \
			break; \
		done; \
	done; [ -z "$$failed" ] || { echo "the tests fail with$$failed" >&2; exit 1; }

lint: $(INSTALLED_DEV) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test ## lint and test

bench: $(INSTALLED_DEV) ## run the benchmarks
	@$(BIN)/python -m benchmarks $(ARGS)

real-model: $(INSTALLED_DEV) ## play turns with a real model on llama.cpp (REAL_MODEL=file.gguf; tests/real_model)
	$(BIN)/python -m pip install --quiet --group real-model
	@REAL_MODEL="$(REAL_MODEL)" $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/real_model $(ARGS)

simulate: $(INSTALLED_DEV) ## play simulated worlds until stopped (ARGS="--seed 7" to see one, MUTANT=name to plant a bug, "--help" for more)
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation $(if $(MUTANT),--mutant $(MUTANT)) $(ARGS)

faults: $(INSTALLED_DEV) ## run the fault suite at length
	@FAULTS=long $(BIN)/python -m pytest -q -n auto -m "faults or fuzz or simulation" $(ARGS)

diagrams: $(INSTALLED_DEV) ## record the sequence diagrams of the documentation anew
	@RECORD_DIAGRAMS=1 $(BIN)/python -m pytest -q tests/docs/test_recorded_diagrams.py
	@$(BIN)/python -m app_server_protocol.export --docs

captures: $(INSTALLED_DEV) ## take the pictures of the chat and the inspector in the documentation anew
	@RECORD_CAPTURES=1 $(BIN)/python -m pytest -q tests/cli/chat/test_chat_process.py tests/cli/inspect/test_inspect_page.py tests/cli/inspect/test_inspect_live.py

mutants: $(INSTALLED_DEV) ## mutation tests (ARGS="'app_server.server.rpc.*'" to choose); docs/mutants.md has the results
	$(BIN)/python -m pip install --quiet --group mutation
	@$(BIN)/mutmut run --max-children 1 $(ARGS)

coverage: $(INSTALLED_DEV) ## run the tests with coverage, that of other processes included (ARGS as for test)
	$(BIN)/coverage erase
	@TESTED_INSTALLATION=$(VENV) $(BIN)/coverage run -m pytest -q $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

site: $(INSTALLED_DEV) ## build the documentation as a site that can be searched, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

wheel: $(INSTALLED_DEV) ## build the wheel and the source archive into dist/
	@rm -f dist/*.whl dist/*.tar.gz
	$(BIN)/python -m hatchling build -d dist

sbom: wheel ## list what an installation of the wheel brings, in dist/sbom.json
	@rm -rf build/bare && "$(PYTHON)" -m venv --without-pip build/bare
	@$(BIN)/python -m pip --python build/bare/bin/python install --quiet --disable-pip-version-check dist/*.whl
	@$(BIN)/python -m pip install --quiet --group release
	$(BIN)/cyclonedx-py environment build/bare/bin/python --output-format JSON --output-file dist/sbom.json

vsix: $(INSTALLED_DEV) ## package the extension for VS Code (needs npm)
	@cd editors/vscode && npm install --silent --no-audit --no-fund --no-package-lock && PATH="$(abspath $(BIN)):$$PATH" npm run --silent package

clean: ## remove what was built or installed here
	rm -rf .venv .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis mutants .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[chat]'
	@touch $@

# Dependency groups are why pip has to be 25.1 or newer. The extras are tested, too.
$(INSTALLED_DEV): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[otel,inspect,chat]' --group dev
	@$(BIN)/python -m pip install --quiet --no-deps --group clients || echo 'no openai-codex: its tests are skipped'
	@$(BIN)/python -m pip install --quiet --group browser || echo 'no playwright: tests of the inspector in a browser are skipped'
	@$(BIN)/python -m pip install --quiet --no-deps --group accessibility || echo 'no axe-core: the accessibility of the inspector is not tested'
	@$(BIN)/python -m pip install --quiet --group docs || echo 'no mkdocs: the site of the documentation is not built'
	@touch $@
