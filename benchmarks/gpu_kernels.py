"""Single kernels of training steps against the bytes that they must move, and their values beside PyTorch's. Needs a GPU.

    python benchmarks/gpu_kernels.py              # all
    python benchmarks/gpu_kernels.py norm sums    # those whose names contain a word
    python benchmarks/gpu_kernels.py --check      # values alone
    python benchmarks/gpu_kernels.py --kernels    # which kernels a call is made of, by PyTorch's profiler

A kernel is launched from a CUDA graph, over as many arrays as do not fit into the caches together. `wanted` is what its bytes
take at the speed of a copy in the same run.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.backends.cuda import backend
from flambeau.tensors.tensor import wrap

COLD = 400 << 20  # bytes of inputs that are read before one is read again
BF16, F32 = fl.bfloat16, fl.float32
_CASES: dict[str, Callable[[], Any]] = {}


def case(name: str, *args: Any) -> Callable[[Any], Any]:
    """Enters a function that gives (calls, bytes of one call, check); args: given to it."""
    def enter(function: Any) -> Any:
        _CASES[name] = lambda: function(*args)
        return function
    return enter


def there(x: fl.Tensor) -> torch.Tensor:
    """PyTorch's tensor over the same memory."""
    return torch.from_dlpack(x.detach())


def draw(*shape: int, dtype: Any = F32, scale: float = 1.0) -> fl.Tensor:
    return (fl.randn(*shape, device="cuda") * scale).to(dtype)


def several(make: Callable[[], tuple[fl.Tensor, ...]]) -> list[tuple[fl.Tensor, ...]]:
    made = [make()]
    size = sum([t.numel() * t.element_size() for t in made[0]])
    return made + [make() for _ in range(min(max(COLD // size, 1), 40))]


def near(got: fl.Tensor, wanted: torch.Tensor, tolerance: float) -> float:
    """How far apart they are, relative to the largest; more than the tolerance is an error."""
    mine = there(got).double()
    far = ((mine - wanted.double()).abs().max() / wanted.double().abs().max().clamp_min(1e-30)).item()
    assert far <= tolerance, f"off by {far:.2e}, allowed {tolerance:.0e}"
    return far


def microseconds(calls: list[Callable[[], Any]]) -> float:
    for call in calls[:2]:
        call()
    fl.cuda.synchronize()
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        for call in calls:
            call()
    start, end = fl.cuda.Event(enable_timing=True), fl.cuda.Event(enable_timing=True)
    best = float("inf")
    for _ in range(6):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1000 / len(calls))
    return best


def kernel(name: str, *args: Any) -> Any:
    made = backend.call(name, tuple([a._array if isinstance(a, fl.Tensor) else a for a in args]))
    return tuple([None if m is None else wrap(m) for m in made]) if isinstance(made, tuple | list) else wrap(made)


def eps(dtype: Any) -> float:
    return 2 * fl.finfo(dtype).eps


# -------------------------------------------------------------------------------------------------------- cross entropy
def _logits(rows: int, classes: int, pitch: int, dtype: Any) -> Any:
    x = draw(rows, pitch, dtype=dtype, scale=3)[:, :classes]
    target = fl.randint(0, classes, (rows,), device="cuda")
    single = there(x).float().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(single, there(target))
    wanted.backward()
    return x, target, wanted, single.grad


@case("cross entropy, bf16 logits", 50257, 50257, BF16)
@case("cross entropy, bf16 logits, even rows", 50257, 50264, BF16)
@case("cross entropy, f32 logits", 50257, 50257, F32)
def cross_entropy(classes: int, pitch: int, dtype: Any) -> Any:
    x, target, wanted, _ = _logits(16384, classes, pitch, dtype)
    call = lambda: kernel("logits_loss", x, target, None, 1, -100)
    return [call] * 2, x.numel() * x.element_size(), lambda: near(call()[0], wanted.detach(), 1e-6)


@case("cross entropy's gradient, bf16 logits", 50257, 50257, BF16)
@case("cross entropy's gradient, bf16 logits, even rows", 50257, 50264, BF16)
@case("cross entropy's gradient, f32 logits", 50257, 50257, F32)
def cross_entropy_gradient(classes: int, pitch: int, dtype: Any) -> Any:
    x, target, _, wanted = _logits(16384, classes, pitch, dtype)
    _, tops, inverse, total = kernel("logits_loss", x, target, None, 1, -100)
    grad = fl.ones((), device="cuda")
    call = lambda: kernel("logits_loss_backward", grad, x, tops, inverse, target, None, total, -100, x._array.dtype, pitch)
    return [call] * 2, 2 * x.numel() * x.element_size(), lambda: near(call(), wanted, max(eps(dtype), 4e-6))


@case("cross entropy with powers kept, f32", 50257)
def cross_entropy_kept(classes: int) -> Any:
    x, target, wanted, _ = _logits(16384, classes, classes, F32)
    call = lambda: kernel("cross_entropy", x, target, None, 1, -100, True)
    return [call] * 2, 2 * x.numel() * 4, lambda: near(call()[0], wanted.detach(), 1e-6)


# ----------------------------------------------------------------------------------------------------------- layer norm
@case("layer norm 768, f32", 768, F32, F32)
@case("layer norm 768, f32 to bf16", 768, F32, BF16)
@case("layer norm 768, bf16", 768, BF16, BF16)
@case("layer norm 384, f32 to bf16", 384, F32, BF16)
def layer_norm(n: int, dtype: Any, result: Any) -> Any:
    sets, w, b = several(lambda: (draw(16384, n, dtype=dtype),)), draw(n), draw(n)
    kind = fl.zeros((), dtype=result)._array.dtype
    call = lambda x: kernel("layer_norm", x, 1, w, b, 1e-5, kind)[0]
    wanted = torch.nn.functional.layer_norm(there(sets[0][0]).float(), (n,), there(w), there(b))
    size = 16384 * n * (sets[0][0].element_size() + kind.itemsize)
    return [lambda x=x: call(x) for x, in sets], size, lambda: near(call(sets[0][0]), wanted, eps(result))


@case("layer norm's gradient 768, f32", 768, F32, F32, F32)
@case("layer norm's gradient 768, bf16 to f32", 768, BF16, F32, F32)
@case("layer norm's gradient 768, bf16", 768, BF16, BF16, BF16)
@case("layer norm's gradient 384, f32", 384, F32, F32, F32)
@case("layer norm's gradient 384, bf16 to f32", 384, BF16, F32, F32)
@case("layer norm's gradient 1600, bf16 to f32", 1600, BF16, F32, F32)
def layer_norm_gradient(n: int, dtype: Any, given: Any, result: Any) -> Any:
    sets, w, b = several(lambda: (draw(16384, n, dtype=dtype), draw(16384, n, dtype=given))), draw(n), draw(n)
    kind = fl.zeros((), dtype=result)._array.dtype
    stats = [kernel("layer_norm", x, 1, w, b, 1e-5)[1:] for _, x in sets]
    call = lambda g, x, mean, over: kernel("layer_norm_grad", g, x, 1, mean, over, w, (True, True, True), kind)
    x, tw, tb = (there(t).double().requires_grad_() for t in (sets[0][1], w, b))
    torch.nn.functional.layer_norm(x, (n,), tw, tb).backward(there(sets[0][0]).double())

    def check() -> float:
        made = call(*sets[0], *stats[0])
        again = call(*sets[0], *stats[0])
        assert all([fl.equal(a, b) for a, b in zip(made, again)]), "two runs differ"
        return max([near(m, t.grad, e) for m, t, e in zip(made, (x, tw, tb), (eps(result), 1e-5, 1e-5))])
    size = 16384 * n * (sets[0][0].element_size() + sets[0][1].element_size() + kind.itemsize)
    return [lambda s=s, t=t: call(*s, *t) for s, t in zip(sets, stats)], size, check


@case("layer norm's gradient 768, bf16 to f32 and bf16, and the residual's added", 768)
@case("layer norm's gradient 384, bf16 to f32 and bf16, and the residual's added", 384)
def residual_gradient(n: int) -> Any:
    sets = several(lambda: (draw(16384, n, dtype=BF16), draw(16384, n), draw(16384, n)))
    w, b, single, half = draw(n), draw(n), *[fl.zeros((), dtype=d)._array.dtype for d in (F32, BF16)]
    stats = [kernel("layer_norm", x, 1, w, b, 1e-5)[1:] for _, x, _ in sets]
    call = lambda g, x, r, mean, over: kernel("layer_norm_grad", g, x, 1, mean, over, w, (True, True, True), single, r, half)
    x = there(sets[0][1]).double().requires_grad_()
    torch.nn.functional.layer_norm(x, (n,), there(w).double(), there(b).double()).backward(there(sets[0][0]).double())

    def check() -> float:
        made = call(*sets[0], *stats[0])
        return max(near(made[0], x.grad + there(sets[0][2]).double(), 1e-6), near(made[-1], there(made[0]), eps(BF16)))
    return [lambda s=s, t=t: call(*s, *t) for s, t in zip(sets, stats)], 16384 * n * (2 + 4 + 4 + 4 + 2), check


# ------------------------------------------------------------------------------------------------------- sums over rows
@case("sums of bias gradients 768, bf16", 16384, 768, BF16)
@case("sums of bias gradients 2304, bf16", 16384, 2304, BF16)
@case("sums of bias gradients 3072, bf16", 16384, 3072, BF16)
@case("sums of bias gradients 384, bf16", 16384, 384, BF16)
@case("sums of rows 768, f32", 16384, 768, F32)
@case("sums of rows 128x512, f32", 128, 512, F32)
@case("sums of rows 64 x (256*384), f32", 64, 256 * 384, F32)
def sums(rows: int, n: int, dtype: Any) -> Any:
    sets = several(lambda: (draw(rows, n, dtype=dtype),))
    call = lambda x: x.sum(0)
    wanted = there(sets[0][0]).double().sum(0)
    size = rows * n * sets[0][0].element_size()
    return [lambda x=x: call(x) for x, in sets], size, lambda: near(call(sets[0][0]), wanted, eps(dtype) + 1e-5)


@case("sum of 64 M floats")
def whole_sum() -> Any:
    x = draw(64 << 20)
    return [x.sum] * 3, x.numel() * 4, lambda: near(x.sum(), there(x).double().sum(), 1e-3)


# ----------------------------------------------------------------------------------------------------------- batch norm
def _images(shape: tuple[int, ...], dtype: Any, last: bool) -> fl.Tensor:
    x = draw(*shape, dtype=dtype)
    return x.contiguous(memory_format=fl.channels_last) if last else x


def _entered(channels: int, side: int, dtype: Any, last: bool) -> None:
    title = f"{channels} x {side} x {side}, {str(dtype)[6:]}{', channels last' if last else ''}"
    shape = (256, channels, side, side)

    @case(f"batch norm {title}")
    def batch_norm() -> Any:
        sets, w, b = several(lambda: (_images(shape, dtype, last),)), draw(channels), draw(channels)
        mean, var = fl.zeros(channels, device="cuda"), fl.ones(channels, device="cuda")
        call = lambda x: F.batch_norm(x, mean, var, w, b, True)
        wanted = torch.nn.functional.batch_norm(there(sets[0][0]).float(), None, None, there(w), there(b), True)
        size = 3 * sets[0][0].numel() * sets[0][0].element_size()
        return [lambda x=x: call(x) for x, in sets], size, lambda: near(call(sets[0][0]), wanted, eps(dtype) + 1e-5)

    @case(f"batch norm's gradient {title}")
    def batch_norm_gradient() -> Any:
        sets = several(lambda: (_images(shape, dtype, last), _images(shape, dtype, last)))
        w, b = draw(channels), draw(channels)
        stats = [kernel("batch_norm", x, w, b, None, None, True, 0.1, 1e-5)[1:] for _, x in sets]
        call = lambda g, x, mean, over: kernel("batch_norm_grad", g, x, w, mean, over, True, (True, True, True))
        x, tw, tb = (there(t).double().contiguous().requires_grad_() for t in (sets[0][1], w, b))
        torch.nn.functional.batch_norm(x, None, None, tw, tb, True).backward(there(sets[0][0]).double())

        def check() -> float:
            made = call(*sets[0], *stats[0])
            return max([near(m, t.grad, e) for m, t, e in zip(made, (x, tw, tb), (eps(dtype) + 1e-5, 1e-4, 1e-4))])
        size = 5 * sets[0][0].numel() * sets[0][0].element_size()
        return [lambda s=s, t=t: call(*s, *t) for s, t in zip(sets, stats)], size, check


for _channels, _side in ((64, 32), (128, 16), (512, 4)):
    for _dtype, _last in ((F32, False), (BF16, True), (F32, True)):
        _entered(_channels, _side, _dtype, _last)


# ------------------------------------------------------------------------------------------- embeddings and optimizers
@case("embedding's gradient, 16384 rows into 65 x 384", 16384, 65, 384)
@case("embedding's gradient, 256 rows into 256 x 384", 256, 256, 384)
@case("embedding's gradient, 1024 rows into 1024 x 768", 1024, 1024, 768)
@case("embedding's gradient, 16384 rows into 50257 x 768", 16384, 50257, 768)
def embedding_gradient(rows: int, words: int, n: int) -> Any:
    at = fl.randint(0, words, (rows,), device="cuda") if rows != words else fl.arange(rows, device="cuda")
    sets = several(lambda: (draw(rows, n),))[:10]
    call = lambda g: kernel("embedding_dense_backward", g, at, words, -1, False)
    wanted = torch.zeros(words, n, device="cuda", dtype=torch.float64).index_add_(0, there(at), there(sets[0][0]).double())
    return [lambda g=g: call(g) for g, in sets], (rows + words) * n * 4, lambda: near(call(sets[0][0]), wanted, 1e-5)


@case("AdamW, 124 M in 148 tensors", 124)
@case("AdamW, 10.7 M in 148 tensors", 10.7)
@case("AdamW, 0.5 M in 6 tensors", 0.5)
def adamw(millions: float) -> Any:
    sizes = [int(millions * 1e6 / 148)] * 148 if millions > 1 else [784 * 512, 512, 512 * 256, 256, 2560, 10]
    lists = [[draw(n) for n in sizes] for _ in range(2)] + [[fl.zeros(n, device="cuda") for n in sizes] for _ in range(2)]
    theirs = [there(lists[0][0]).clone(), there(lists[1][0]).clone()]
    parameter = torch.nn.Parameter(theirs[0])
    parameter.grad = theirs[1]
    torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.1).step()
    arrays = [[t._array for t in some] for some in lists]

    def call() -> Any:
        steps = [np.zeros((), np.float32) for _ in sizes]
        return backend.call("fused_adam", (*arrays, [], steps, 1e-3, 0.9, 0.999, 1e-8, 0.1, True, False))

    def check() -> float:
        assert call()
        return near(lists[0][0], parameter.detach(), 1e-6)
    return [call], 28 * sum(sizes), check


def copy_speed() -> float:
    """Bytes of a microsecond."""
    source, target = draw(64 << 20), draw(64 << 20)
    return 2 * source.numel() * 4 / microseconds([lambda: target.copy_(source)] * 3)


def run(name: str, speed: float) -> None:
    """One row of the table. Without a speed its values are all that is looked at."""
    calls, size, check = _CASES[name]()
    off = check()
    if not speed:
        return
    try:
        took = microseconds(calls)
    except Exception as error:  # what cannot be captured is timed by itself
        print(f"    ({type(error).__name__}: {str(error)[:100]})")
        took = by_itself(calls)
    print(f"{name:58} {took:9.1f} {size / speed:9.1f} {took / (size / speed):6.2f}   {off:.1e}", flush=True)
    if "--kernels" in sys.argv:
        print(f"    {breakdown(calls)}", flush=True)


def main() -> None:
    torch.cuda.init()
    fl.manual_seed(0)
    F.layer_norm(draw(2, 8), (8,))  # the rules of layers' shapes come with the layers
    words = [word for word in sys.argv[1:] if word[:2] != "--"]
    names = [name for name in _CASES if not words or any([word in name for word in words])]
    speed = 0.0 if "--check" in sys.argv else copy_speed()
    if speed:
        print(f"a copy of 64 M floats: {speed / 1e6:.2f} TB/s")
        print(f"{'':58} {'us':>9} {'wanted':>9} {'ratio':>6}   off by", flush=True)
    failed = 0
    for name in names:
        try:
            run(name, speed)
        except Exception:
            failed += 1
            print(f"{name}: FAILED\n{traceback.format_exc(limit=-3)}", flush=True)
        fl.cuda.empty_cache()
        torch.cuda.empty_cache()
    sys.exit(failed)


def breakdown(calls: list[Callable[[], Any]]) -> str:
    """The kernels of a call with their times, as the profiler has them."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for call in calls:
            call()
        fl.cuda.synchronize()
    rows = [e for e in seen.key_averages() if e.device_time_total]
    return ", ".join([f"{e.key[:24]} {e.device_time_total / len(calls):.1f}" for e in rows])


def by_itself(calls: list[Callable[[], Any]]) -> float:
    start, end = fl.cuda.Event(enable_timing=True), fl.cuda.Event(enable_timing=True)
    best = float("inf")
    for _ in range(5):
        start.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1000 / len(calls))
    return best


if __name__ == "__main__":
    main()
