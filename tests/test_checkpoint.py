"""utils.checkpoint: gradients, random numbers, nesting, and what is noticed when a second run differs; against PyTorch."""


import pytest
import torch.nn.utils.prune  # noqa: F401 (PyTorch's own is not imported by itself)
from compare import agree_in_words
from layer_cases import dense

import flambeau


# -------------------------------------------------------------------------------------------------------- checkpointing
def run(torch, checkpoint, **options):
    """Losses and gradients of a small model whose middle is checkpointed, with random numbers in it."""
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.arange(4.0))
    x = torch.ones(4, requires_grad=True)
    runs = []

    def part(t, scale=2.0):
        runs.append(1)
        return (t * w).sin() * torch.rand(4) + (t * scale).exp()

    y = checkpoint(part, x * 1, **options) if checkpoint else part(x * 1)
    z = (y * torch.rand(4)).sum()
    z.backward()
    return z, w.grad, x.grad, torch.rand(2), len(runs)


@pytest.mark.parametrize("options", [{"use_reentrant": True}, {"use_reentrant": False},
                                     {"use_reentrant": False, "preserve_rng_state": False},
                                     {"use_reentrant": True, "preserve_rng_state": False},
                                     {"use_reentrant": False, "determinism_check": "none"},
                                     {"use_reentrant": False, "scale": 3.0},
                                     {"use_reentrant": False, "early_stop": False}], ids=str)
def test_checkpoint(options):
    agree_in_words(lambda torch: run(torch, torch.utils.checkpoint.checkpoint, **options), tolerance=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_gradients_are_the_same(reentrant):
    plain = run(flambeau, None)
    checkpointed = run(flambeau, flambeau.utils.checkpoint.checkpoint, use_reentrant=reentrant)
    for a, b in zip(plain[:4], checkpointed[:4]):
        assert a.tolist() == b.tolist()
    assert (plain[4], checkpointed[4]) == (1, 2)


CHECKPOINT = {
    "no choice": lambda torch, C, x: C.checkpoint(torch.sin, x).grad_fn.name(),
    "no gradient": lambda torch, C, x: C.checkpoint(torch.sin, torch.ones(2), use_reentrant=True).requires_grad,
    "keyword": lambda torch, C, x: C.checkpoint(torch.sin, x, use_reentrant=True, a=3),
    "context": lambda torch, C, x: C.checkpoint(torch.sin, x, use_reentrant=True, context_fn=lambda: 3),
    "check": lambda torch, C, x: C.checkpoint(torch.sin, x, use_reentrant=False, determinism_check="foo"),
    "grad": lambda torch, C, x: torch.autograd.grad(C.checkpoint(torch.sin, x, use_reentrant=True).sum(), x),
    "grad without reentry": lambda torch, C,
    x: torch.autograd.grad(C.checkpoint(torch.sin, x, use_reentrant=False).sum(), x),
    "nothing to do": lambda torch, C, x: C.checkpoint(lambda t: t.detach(), x, use_reentrant=True).sum().backward(),
    "saved": lambda torch, C, x: (lambda y: (y.grad_fn._saved_self, y.grad_fn._saved_self, y.sum().backward(), x.grad))(
        C.checkpoint(torch.sin, x, use_reentrant=False)),
    "kept graph": lambda torch, C, x: (lambda y: (y.backward(retain_graph=True), y.backward(), x.grad))(
        C.checkpoint(torch.sin, x, use_reentrant=False).sum()),
    "second derivative": lambda torch, C, x: torch.autograd.grad(torch.autograd.grad(
        C.checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False).sum(), x, create_graph=True)[0].sum(), x),
    "in no_grad": lambda torch, C, x: torch.no_grad()(lambda: C.checkpoint(torch.sin, x, use_reentrant=False))(),
    "sequential": lambda torch, C,
    x: C.checkpoint_sequential([torch.sin, torch.exp, torch.cos], 2, x, use_reentrant=False),
    "sequential keyword": lambda torch, C, x: C.checkpoint_sequential([torch.sin], 1, x, use_reentrant=False, a=1),
    "device": lambda torch, C, x: C.DefaultDeviceType.get_device_type() in ("cpu", "cuda"),
}


@pytest.mark.parametrize("case", CHECKPOINT)
def test_checkpoint_edges(case):
    agree_in_words(lambda torch: CHECKPOINT[case](torch, torch.utils.checkpoint, torch.ones(2, requires_grad=True)),
                   tolerance=1e-6)


@pytest.mark.parametrize("again, words", [
    (lambda torch, y: y.sin(), "A different number of tensors was saved"),
    (lambda torch, y: torch.cat([y, y]).exp().cos()[:2], "have different metadata"),
    (lambda torch, y: y.sin().sin().exp().cos().sin(), "trying to save more tensors")])
def test_a_different_second_run_is_noticed(again, words):
    C, runs = flambeau.utils.checkpoint, []

    def part(t):
        runs.append(1)
        y = t.sin()
        return y.exp().cos() if len(runs) == 1 else again(flambeau, y)

    x = flambeau.ones(2, requires_grad=True)
    with C.set_checkpoint_early_stop(False):
        y = C.checkpoint(part, x, use_reentrant=False)
    with pytest.raises(C.CheckpointError, match=words):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_nested_checkpoints(reentrant):
    def program(torch):
        C = torch.utils.checkpoint
        runs = []

        def inner(t):
            runs.append("inner")
            return t.sin().exp()

        def outer(t):
            runs.append("outer")
            return C.checkpoint(inner, t.cos() * 2, use_reentrant=reentrant).tanh()

        x = torch.arange(3.0).requires_grad_()
        y = C.checkpoint(outer, x * 1.5, use_reentrant=reentrant)
        y.sum().backward()
        return y, x.grad, runs

    agree_in_words(program, tolerance=1e-5)


def test_contexts_modules_and_memory():
    import contextlib
    import gc
    import weakref
    C = flambeau.utils.checkpoint
    said = []

    @contextlib.contextmanager
    def note(what):
        said.append(what)
        yield

    m = dense(flambeau, 3, 3)
    x = flambeau.ones(1, 3, requires_grad=True)
    inner = []

    def part(t):
        h = (m(t) * 2).exp()
        inner.append(weakref.ref(h))
        return h.sin()

    y = C.checkpoint(part, x, use_reentrant=False, context_fn=lambda: (note("forward"), note("again")))
    gc.collect()
    assert inner[0]() is None  # not kept for backward
    y.sum().backward()
    assert said == ["forward", "again"] and m.weight.grad is not None
    node = weakref.ref(y)
    del y
    gc.disable()
    try:
        assert node() is None
    finally:
        gc.enable()
