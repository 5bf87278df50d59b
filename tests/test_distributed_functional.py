"""Collectives that gradients flow through, and those that give new tensors: beside PyTorch's."""

import pytest
import rank_programs as programs
import rank_programs_inside as inside
from ranks import Ranks

pytest.importorskip("mpi4py", reason="the extra 'mpi' is not installed")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    path = tmp_path_factory.mktemp("rendezvous")
    both = [Ranks(2, path / name, name) for name in ("flambeau", "torch")]
    yield both
    for ranks in both:
        ranks.close()


@pytest.mark.parametrize("name", programs.DIFFERENTIABLE)
def test_gradients(worlds, name):
    ours, theirs = (ranks(programs.differentiated, name) for ranks in worlds)
    assert ours == theirs


@pytest.mark.parametrize("name", programs.NEW_TENSORS)
def test_new_tensors(worlds, name):
    ours, theirs = (ranks(programs.functional, name) for ranks in worlds)
    assert ours == theirs


def test_compiled_functions_repeat_their_collectives(worlds):
    assert worlds[0](inside.compiled) == [[[True] * 6, [4] * 5]] * 2  # three in the checks, one barrier


def test_a_profiler_sees_collectives(worlds):
    ours, theirs = (ranks(inside.profiled) for ranks in worlds)
    assert ours == theirs
