"""The tests under each Python that flambeau supports: `nox`, or `nox -s tests-3.13 -- tests/test_autograd.py -n 2`.

`nox -s core` leaves PyTorch out, where there is no wheel of it for a Python yet: examples of docstrings and pages, programs, types.
Interpreters that are not installed are skipped (`--error-on-missing-interpreters` makes that an error).
"""

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
WITHOUT_PYTORCH = ["tests/test_docstrings.py", "tests/test_docs.py", "tests/test_architecture.py", "tests/test_import_cost.py",
                   "tests/test_compile_examples.py", "tests/test_typing.py"]
nox.options.sessions = ["tests"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """All tests; further arguments go to pytest."""
    session.install("torch==2.13.0", "-e", ".[test]")
    session.run("python", "-m", "pytest", *(session.posargs or ["-n", "2", "--dist", "loadfile"]))


@nox.session(python=PYTHONS)
def core(session: nox.Session) -> None:
    """What needs no PyTorch to compare with."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", *(session.posargs or WITHOUT_PYTORCH))
