# One command each: `make demo` sets up and trains a small network; `make test` sets up and runs all tests;
# `make test-machines` runs them as on other machines (hours; see tools/machines.py).
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: demo test test-machines lint bench bench-steps docs clean

$(VENV)/.core: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(PY) -m pip install --quiet --disable-pip-version-check "torch==2.13.0" --editable ".[test,dev]"
	touch $@

demo: $(VENV)/.core
	$(PY) examples/digits_mlp.py

test: $(VENV)/.test
	$(PY) -m ruff check .
	$(PY) -m pytest -n 2 --dist loadfile

test-machines: $(VENV)/.test
	$(PY) tools/machines.py

lint: $(VENV)/.test
	$(PY) -m ruff check .

bench: $(VENV)/.test
	$(PY) benchmarks/core.py

bench-steps: $(VENV)/.test
	$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	$(PY) benchmarks/steps.py

docs: $(VENV)/.core
	$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	$(PY) -m mkdocs build --strict --site-dir build/site

clean:
	rm -rf $(VENV) build dist *.egg-info
