"""`utils.progress`: what is shown on a terminal, and that nothing is shown elsewhere."""

from __future__ import annotations

import contextlib
import io
import sys

import pytest

from flambeau.native import notice
from flambeau.utils import progress as module
from flambeau.utils.progress import Bar, progress


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def watched():
    """A terminal as stderr. (Not a fixture: pytest puts a stderr of its own in place when the test begins.)"""
    with contextlib.redirect_stderr(Terminal()) as made:
        yield made


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)


def test_nothing_is_written_where_nobody_looks(monkeypatch, without_tqdm):
    with contextlib.redirect_stderr(io.StringIO()) as pipe:
        assert list(progress(range(1000), "work")) == list(range(1000))
    assert pipe.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", None)  # pythonw
    assert list(progress(range(3))) == [0, 1, 2]


def test_quiet_means_quiet(without_tqdm):
    with watched() as terminal:
        list(progress(range(10), quiet=True))
        assert terminal.getvalue() == ""


def test_a_bar_counts_and_ends_with_a_line(clock, without_tqdm):
    with watched() as terminal:
        for _ in progress(range(4), "training", unit="step"):
            clock.now += 1.0
        shown = terminal.getvalue()
        assert "training" in shown and "25% 1/4  1 step/s  0:03 left" in shown and "100% 4/4  1 step/s  0:04" in shown
        assert shown.endswith("\n") and shown.count("\n") == 1


def test_the_rate_is_that_of_the_last_seconds(clock):
    with watched():
        bar = Bar(total=10_000, unit="B")
        for _ in range(10):  # slow, then quick
            clock.now += 1
            bar.update(1)
        for _ in range(10):
            clock.now += 1
            bar.update(100)
        assert bar.rate(clock.now) == pytest.approx(100)
        assert "1:30 left" in bar.line(clock.now)  # 8990 of them


def test_no_share_is_claimed_without_a_total(clock):
    with watched():
        bar = Bar(unit="B")
        clock.now += 2
        bar.update(3_000_000)
        assert "%" not in bar.line(clock.now) and "left" not in bar.line(clock.now) and "3000k B" in bar.line(clock.now)


def test_drawing_is_rare(clock):
    with watched() as terminal:
        bar = Bar(range(1000))
        for _ in bar:
            clock.now += 0.001
        assert 5 <= terminal.getvalue().count("\r") <= 15


def test_a_loop_that_is_left_leaves_the_terminal_in_order(clock):
    with watched() as terminal:
        for _ in (work := iter(Bar(range(10)))):
            clock.now += 1
            if clock.now > 103:
                break
        work.close()
        assert terminal.getvalue().endswith("\n")


def test_tqdm_is_used_where_it_is():
    with watched() as terminal:
        tqdm = pytest.importorskip("tqdm").tqdm
        bar = progress(range(3), "work")
        assert isinstance(bar, tqdm) and list(bar) == [0, 1, 2] and "3/3" in terminal.getvalue()


def test_downloads_show_a_bar(tmp_path, without_tqdm, monkeypatch):
    with watched() as terminal:
        import flambeau.hub
        monkeypatch.setattr(module, "EVERY", 0.0)
        (tmp_path / "there").write_bytes(b"x" * 300_000)
        flambeau.hub.download_url_to_file((tmp_path / "there").as_uri(), str(tmp_path / "here.pth"))
        assert (tmp_path / "here.pth").read_bytes() == b"x" * 300_000
        assert "here.pth" in terminal.getvalue() and "100%" in terminal.getvalue()
        before = terminal.getvalue()
        flambeau.hub.download_url_to_file((tmp_path / "there").as_uri(), str(tmp_path / "again.pth"), progress=False)
        assert terminal.getvalue() == before


# -------------------------------------------------------------------------------------------------------------- building
def _built(monkeypatch, patience: float) -> None:
    """One build during which the line has had its chance to appear, however slow the machine."""
    monkeypatch.setattr(notice, "PATIENCE", patience)
    monkeypatch.setattr(notice, "EVERY", 0.01)
    made = notice._Building()
    with made:
        ticker = made.ticker
        if ticker is not None and patience == 0:
            while not made.shown:
                ticker.join(0.01)
    if ticker is not None:
        ticker.join()


def test_a_long_build_is_announced_and_the_line_goes_away(monkeypatch):
    with watched() as terminal:
        _built(monkeypatch, 0)
        assert "building kernels (once): 0 done, 1 under way" in terminal.getvalue()
        assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_short_build_is_not(monkeypatch):
    with watched() as terminal:
        _built(monkeypatch, 1000)
        assert terminal.getvalue() == ""


def test_nor_is_one_that_nobody_watches(monkeypatch):
    with contextlib.redirect_stderr(io.StringIO()) as pipe:
        _built(monkeypatch, 0)
    assert pipe.getvalue() == ""
