# One command each: `make demo` sets up and trains a small GPT (`flambeau demo`); `make test` sets up and runs all tests;
# `make test-machines` runs them as on other machines (hours; see tools/machines.py); `make wheels` builds wheels with all kernels
# for Linux on x86-64 and aarch64 into dist/ (half an hour on two cores), which benchmarks/install.py tries in a fresh environment.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: demo test test-gpu sanitize-gpu test-machines lint bench bench-steps docs wheels clean

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

# The half of the tests that is about CUDA, on the machine's GPU.
test-gpu: $(VENV)/.test
	$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[cuda]"
	$(PY) -m pytest tests/test_cuda*.py

# The kernels' tests, watched for accesses outside of arrays and for races in shared memory.
KERNELS := rows reduce index more moments pairs pool optim attention random rejection conv
sanitize-gpu: $(VENV)/.test
	for tool in memcheck racecheck; do compute-sanitizer --tool $$tool --error-exitcode 9 \
		$(PY) -m pytest -n 0 $(KERNELS:%=tests/test_cuda_%.py) || exit 1; done

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

wheels: $(VENV)/.core
	$(PY) -m pip install --quiet --disable-pip-version-check "ziglang>=0.13"
	$(PY) tools/wheels.py

clean:
	rm -rf $(VENV) build dist *.egg-info
