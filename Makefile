# Everything a newcomer needs: `make demo` shows it, `make test` checks it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamp files: the package with its trainer, for the demo; and everything that the tests need.
PACKAGE := $(VENV)/.package
READY := $(VENV)/.ready

.PHONY: setup demo test nightly lint bench docs sbom clean

# Pins the tools of pip's isolated builds too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt

setup: $(READY)

# torch goes first and from the constraints file: an unpinned torch may pull gigabytes of another build.
$(PACKAGE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("resperturb needs Python 3.11 or newer; try: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train]'
	touch $(PACKAGE)

$(READY): $(PACKAGE) reproduction/pyproject.toml
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable ./reproduction
	touch $(READY)

demo: $(PACKAGE)
	$(BIN)/resperturb demo

test: $(READY) lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# Random settings of whole audits, six minutes of the processor: are false alarms as rare as stated?
nightly: $(READY)
	$(BIN)/python -m pytest -m nightly tests/nightly

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Ten minutes on two cores; let nothing else run meanwhile, or the ratios mean nothing.
bench: $(READY)
	$(BIN)/python -m benchmarks.speed --figure docs/images/speed --save docs/results/speed.json

# Warnings are errors: a broken link or an undocumented page stops it.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'Open site/index.html in a browser.'

# A CycloneDX bill of materials of the environment. The tool that writes it has an environment of its own.
sbom: $(PACKAGE)
	test -x .venv-sbom/bin/python || $(PYTHON) -m venv .venv-sbom
	.venv-sbom/bin/python -m pip install --quiet --constraint constraints.txt cyclonedx-bom
	.venv-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
		--of JSON --output-file sbom.json $(BIN)/python
	@echo 'Wrote sbom.json.'

clean:
	rm -rf $(VENV) .venv-sbom .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
