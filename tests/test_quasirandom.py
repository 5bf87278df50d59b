"""Sobol sequences: PyTorch's numbers."""

import pytest
import torch

import flambeau


@pytest.mark.parametrize("dimension", [1, 2, 7, 40, 337, 1111])
@pytest.mark.parametrize("scramble", [False, True])
def test_same_points(dimension, scramble):
    ours, theirs = (m.quasirandom.SobolEngine(dimension, scramble=scramble, seed=3) for m in (flambeau, torch))
    assert repr(ours) == repr(theirs)
    for n in (1, 5, 0, 64):
        assert ours.draw(n).tolist() == theirs.draw(n).tolist()
    assert ours.fast_forward(9).draw(3, dtype=flambeau.float64).tolist() == theirs.fast_forward(9).draw(
        3, dtype=torch.float64).tolist()
    assert ours.num_generated == theirs.num_generated
    assert ours.reset().draw_base2(3).tolist() == theirs.reset().draw_base2(3).tolist()
    with pytest.raises(ValueError):
        ours.draw_base2(5)


def test_too_many_dimensions():
    for dimension in (0, 21202):
        with pytest.raises(ValueError):
            flambeau.quasirandom.SobolEngine(dimension)


def test_into_a_tensor():
    out = flambeau.empty(0)
    made = flambeau.quasirandom.SobolEngine(2).draw(4, out=out)
    assert made is out and out.shape == (4, 2)
