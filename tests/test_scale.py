"""The model of benchmarks/scale.py: what must be true of it whatever the figures are."""

import importlib.util
import pathlib
import sys

import pytest

spec = importlib.util.spec_from_file_location("scale", pathlib.Path(__file__).parent.parent / "benchmarks" / "scale.py")
scale = importlib.util.module_from_spec(spec)
sys.modules["scale"] = scale  # dataclasses look their module up
spec.loader.exec_module(scale)
MACHINE, MODEL = scale.Machine(5e-6, 45e9, 300e12), scale.Model(tokens=16384, element=2)


@pytest.mark.parametrize("name", scale.WAYS)
def test_one_rank_exchanges_nothing(name):
    assert scale.efficiency(name, MACHINE, MODEL, 1) == pytest.approx(1)


@pytest.mark.parametrize("name", scale.WAYS)
def test_more_ranks_are_never_used_better(name):
    found = [scale.efficiency(name, MACHINE, MODEL, p) for p in scale.RANKS]
    assert found == sorted(found, reverse=True) and found[-1] < 1


def test_a_ring_sends_each_byte_twice():
    assert scale.all_reduce(scale.Machine(0, 1e9, 1), 4, 4e9) == pytest.approx(2 * 3 / 4 * 4)
    assert scale.all_gather(scale.Machine(0, 1e9, 1), 4, 4e9) == pytest.approx(3 / 4 * 4)
    assert scale.all_reduce(scale.Machine(1e-3, 1e30, 1), 5, 8) == pytest.approx(8e-3)


def test_what_hides_is_at_most_what_is_computed_meanwhile():
    assert scale.exposed(10.0, 4.0, 0.9) == pytest.approx(6)
    assert scale.exposed(10.0, 100.0, 0.9) == pytest.approx(1)


def test_a_slower_network_pays_for_fewer_ranks():
    slow = scale.Machine(50e-6, 1e9, 300e12)
    for name in scale.WAYS:
        assert scale.pays_until(name, slow, MODEL) <= scale.pays_until(name, MACHINE, MODEL)


def test_a_batch_that_ranks_share_gets_harder_to_spread():
    shared = scale.dataclasses.replace(MODEL, batch=MODEL.tokens)
    for name in ("DDP", "fully_shard"):
        assert scale.WAYS[name](MACHINE, shared, 8) < scale.WAYS[name](MACHINE, MODEL, 8)
        assert scale.efficiency(name, MACHINE, shared, 4096) < scale.efficiency(name, MACHINE, MODEL, 4096)
        assert scale.pays_until(name, MACHINE, shared) < 4096
    assert scale.tensor_parallel(MACHINE, shared, 8) == scale.tensor_parallel(MACHINE, MODEL, 8)


def test_the_table_has_a_line_for_each_number_of_ranks():
    assert scale.table(MACHINE, MODEL).count("\n") == len(scale.RANKS) + 2
