"""Runs a function of nn.functional, or a module, with torch and with flambeau on the same numbers and compares."""

from __future__ import annotations

import warnings

import numpy as np
import torch

import flambeau

DOUBLE = np.float64


def arrays(*shapes, seed=0, dtype=DOUBLE):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def leaf(mod, array):
    made = mod.from_numpy(array.copy())
    return made.requires_grad_(True) if array.dtype.kind in "fc" else made


def value(t):
    return t.detach().numpy()


def tensors(made):
    return [made] if not isinstance(made, (tuple, list)) else list(made)


def same(name, expected, got, rtol=1e-9, atol=1e-11):
    assert str(expected.dtype) == str(got.dtype), name
    assert tuple(expected.shape) == tuple(got.shape), f"{name}: {tuple(expected.shape)} and {tuple(got.shape)}"
    np.testing.assert_allclose(value(got), value(expected), rtol, atol, err_msg=name)


def compare(call, *inputs, rtol=1e-9, atol=1e-11, node=True):
    """call(mod, *tensors): values, gradients of all inputs and the name of the node agree."""
    results = {}
    for mod in (torch, flambeau):
        leaves = [leaf(mod, a) for a in inputs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = tensors(call(mod, *leaves))
        rng = np.random.default_rng(1)
        total = 0
        for m in made:
            if m.requires_grad:
                total = total + (m * mod.from_numpy(rng.standard_normal(tuple(m.shape)).astype(str(m.dtype)[6:]))).sum()
        if not isinstance(total, int):
            total.backward()
        results[mod] = made, [t.grad for t in leaves if t.requires_grad]
    (expected, theirs), (got, ours) = results[torch], results[flambeau]
    assert len(expected) == len(got)
    for i, (e, g) in enumerate(zip(expected, got)):
        same(f"output {i}", e, g, rtol, atol)
        if node and e.grad_fn is not None:
            assert g.grad_fn is not None and g.grad_fn.name() == e.grad_fn.name()
    for i, (e, g) in enumerate(zip(theirs, ours)):
        if e is not None:
            same(f"gradient {i}", e, g, rtol, atol)


def raises_alike(call):
    """Both raise the same type of error."""
    kinds = []
    for mod in (torch, flambeau):
        try:
            call(mod)
        except Exception as error:
            kinds.append(type(error))
        else:
            kinds.append(None)
    assert kinds[0] is not None, "torch did not raise"
    assert kinds[1] is not None and (kinds[1].__name__ == kinds[0].__name__ or issubclass(kinds[1], kinds[0])), kinds


def twice(call, *inputs):
    """Second derivatives in flambeau against finite differences."""
    leaves = [leaf(flambeau, a) for a in inputs]
    assert flambeau.autograd.gradcheck(lambda *t: call(flambeau, *t), leaves)
    assert flambeau.autograd.gradgradcheck(lambda *t: call(flambeau, *t), leaves)


def same_module(build, *inputs, rtol=1e-5, atol=1e-6):
    """A freshly built module has torch's text, parameters, state and output, from the same seed."""
    made = {}
    for mod in (torch, flambeau):
        mod.manual_seed(0)
        module = build(mod.nn)
        text = repr(module)
        out = tensors(module(*[mod.from_numpy(a.copy()) for a in inputs])) if inputs else []
        made[mod] = text, module.state_dict(), out
    (text, state, out), (our_text, our_state, our_out) = made[torch], made[flambeau]
    assert our_text == text
    assert list(our_state) == list(state)
    for name, expected in state.items():
        same(name, expected, our_state[name], rtol, atol)
    for i, (e, g) in enumerate(zip(out, our_out)):
        same(f"output {i}", e, g, rtol, atol)
