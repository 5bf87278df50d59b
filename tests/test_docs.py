"""The README and the handbook: their code runs and prints what they show, their links lead somewhere, and the site builds."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest

import flambeau
from flambeau.native import toolchain

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LANGUAGES = {"python", "output", "sh", "c", "text", "python error", "python error ours"}  # errors: tests/test_errors_page.py


@pytest.fixture
def as_before():
    """What pages set for the whole process is set back."""
    seed, dtype, threads = flambeau.get_rng_state(), flambeau.get_default_dtype(), flambeau.get_num_threads()
    yield
    flambeau.set_rng_state(seed)
    flambeau.set_default_dtype(dtype)
    flambeau.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in")  # which a page shows
@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_code_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch, as_before):
    if "<!-- needs a C compiler -->" in page.read_text(encoding="utf-8") and toolchain.compiler() is None:
        pytest.skip("the page shows native programs, and there is no C compiler")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    assert not pages.run(page, tmp_path)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_blocks_say_what_they_are(page):
    """A block without a language would be code that nobody runs."""
    blocks = pages.blocks_of(page)
    assert {block.language for block in blocks} <= LANGUAGES
    assert page.read_text(encoding="utf-8").count("\n```") == 2 * len(blocks)  # each fence was understood


def test_a_page_that_is_wrong_is_noticed(tmp_path):
    page = tmp_path / "wrong.md"
    page.write_text("# A page\n```python\nprint(1)\n```\n```output\n2\n```\n```python\nraise KeyError\n```\n")
    with pytest.raises(KeyError):
        pages.run(page, tmp_path)
    page.write_text("```python\nprint(1)\n```\n```output\n2\n```\n<!-- not run: a test -->\n```python\nraise KeyError\n```\n")
    [message] = pages.run(page, tmp_path)
    assert "line 2" in message
    page.write_text("<!-- source: pages.Block -->\n```python\nclass Block:\n...\n    text: bytes\n```\n")
    [message] = pages.run(page, tmp_path)
    assert "not in the source of pages.Block" in message and "text: bytes" in message


@pytest.mark.parametrize("page", [ROOT / "README.md", *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_of_the_front_pages_lead_somewhere(page):
    """(Those of the handbook are checked where the site is built.)"""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_the_site_builds_without_warnings(tmp_path):
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
                           cwd=ROOT, capture_output=True, text=True, env=environment)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "index.html").exists()
    assert 'id="Linear"' in (tmp_path / "site" / "api" / "nn" / "index.html").read_text(encoding="utf-8")
