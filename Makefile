# One command each: `make demo` sets up and trains a small GPT (`flambeau demo`); `make test` sets up and runs all tests;
# `make test-machines` runs them as on other machines (hours; see tools/machines.py); `make wheels` builds wheels with all kernels
# for Linux on x86-64 and aarch64 into dist/ (half an hour on two cores), which benchmarks/install.py tries in a fresh environment.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: demo test test-machines lint bench wheels clean

$(VENV)/.core: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(PY) -m pip install --quiet --disable-pip-version-check "torch==2.13.0" --editable ".[test,dev]"
	touch $@

demo: $(VENV)/.core
	$(VENV)/bin/flambeau demo

test: $(VENV)/.test
	$(PY) -m ruff check .
	$(PY) -m pytest -n 2 --dist loadfile

test-machines: $(VENV)/.test
	$(PY) tools/machines.py

lint: $(VENV)/.test
	$(PY) -m ruff check .

bench: $(VENV)/.test
	$(PY) benchmarks/core.py

wheels: $(VENV)/.core
	$(PY) -m pip install --quiet --disable-pip-version-check "ziglang>=0.13"
	$(PY) tools/wheels.py

clean:
	rm -rf $(VENV) build dist *.egg-info
