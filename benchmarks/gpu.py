"""Operations and training steps on a GPU, ours and others' in turns in one run. Needs an NVIDIA GPU.

    python benchmarks/gpu.py                                                   # everything
    python benchmarks/gpu.py --rows small mnist --ways flambeau compiled torch  # some

Steps go several ways: `flambeau` and `torch` operation by operation; `compiled` is flambeau.compile of the whole step;
`torch.compile` and `reduce-overhead` compile the loss, with PyTorch's fused optimizer behind it; `jax` is one `jit`.

Times are of the host and the device together: a round of calls, then a wait for the device; the best of several rounds.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

DEVICE = "cuda"
LARGE = 64 << 20
Call = Callable[[], Any]


def seconds(calls: dict[str, Call], wait: dict[str, Call], rounds: int = 6, least: float = 0.05) -> dict[str, float]:
    """The best time of each call, taken in turns."""
    count, best = {}, dict.fromkeys(calls, float("inf"))
    for name, call in calls.items():
        for _ in range(3):
            call()
        wait[name]()
        start = time.perf_counter()
        call()
        wait[name]()
        count[name] = max(1, int(least / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(count[name]):
                call()
            wait[name]()
            best[name] = min(best[name], (time.perf_counter() - start) / count[name])
    return best


# ---------------------------------------------------------------------------------------------------------- operations
def small(t: Any) -> dict[str, Call]:
    x, y = t.ones(3, 4, device=DEVICE), t.ones(3, 4, device=DEVICE)
    w = t.ones(3, 4, device=DEVICE).requires_grad_()
    return {"a*b 3x4": lambda: x * y, "a*b 3x4, recorded": lambda: w * y, "sum 3x4": lambda: x.sum(),
            "x.T": lambda: x.T, "20 ops, forward and backward": chain(t)}


def chain(t: Any, inside: Callable[..., Any] | None = None) -> Call:
    x = t.full((64, 64), 0.5, device=DEVICE).requires_grad_()

    def total(y: Any) -> Any:
        for _ in range(5):
            y = (y * 1.01 + 0.1).tanh() - 0.05
        return y.sum()

    total = total if inside is None else inside(total)

    def run() -> Any:
        x.grad = None
        made = total(x)
        made.backward()
        return made.detach()
    return run


def bandwidth(t: Any) -> dict[str, Call]:
    x, y = t.zeros(LARGE, device=DEVICE), t.zeros(LARGE, device=DEVICE)
    rows, F = x.view(-1, 1024), t.nn.functional
    return {"add 64M": lambda: x + y, "exp 64M": lambda: x.exp(), "sum 64M": lambda: x.sum(), "copy 64M": lambda: x.clone(),
            "softmax 64M": lambda: rows.softmax(-1), "layer_norm 64M": lambda: F.layer_norm(rows, (1024,))}


def products(t: Any) -> dict[str, Call]:
    made = {}
    for name, dtype in (("bf16", t.bfloat16), ("f32", t.float32)):
        a = t.ones(4096, 4096, device=DEVICE).to(dtype)
        made[f"matmul 4096 {name}"] = lambda a=a: a @ a
    return made


# --------------------------------------------------------------------------------------------------------------- steps
def mlp(t: Any, *sizes: int) -> Any:
    layers: list[Any] = []
    for a, b in itertools.pairwise(sizes):
        layers += [t.nn.Linear(a, b), t.nn.ReLU()]
    return t.nn.Sequential(*layers[:-1])


Way = Callable[[Callable[..., Any]], Callable[..., Any]]


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def step_of(t: Any, model: Any, optimizer: Any, loss_of: Callable[[Any], Any], inside: Way = as_it_is) -> Call:
    """inside: what becomes of the loss, as a function of the model."""
    loss_of = inside(loss_of)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss
    return step


def mnist(t: Any, inside: Way = as_it_is, **options: Any) -> Call:
    t.manual_seed(0)
    model = mlp(t, 784, 512, 256, 10).to(DEVICE)
    x, y = t.randn(128, 784).to(DEVICE), t.randint(0, 10, (128,)).to(DEVICE)
    optimizer = t.optim.Adam(model.parameters(), 1e-3, **options)
    return step_of(t, model, optimizer, lambda m: t.nn.functional.cross_entropy(m(x), y), inside)


def gpt(t: Any, layers: int, width: int, heads: int, batch: int, length: int, words: int, inside: Way = as_it_is,
        **options: Any) -> Call:
    nn, F = t.nn, t.nn.functional
    t.manual_seed(0)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, n, c = x.shape
            q, k, v = [z.view(b, n, heads, c // heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, 2)]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, c)
            x = x + self.out(y)
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, x: Any) -> Any:
            h = self.words(x) + self.places(places)
            for block in self.blocks:
                h = block(h)
            return self.head(self.norm(h))

    places = t.arange(length).to(DEVICE)
    model = GPT().to(DEVICE)
    x = t.randint(0, words, (batch, length)).to(DEVICE)
    y = t.randint(0, words, (batch, length)).to(DEVICE)

    def loss_of(m: Any) -> Any:
        with t.autocast("cuda", dtype=t.bfloat16):
            return F.cross_entropy(m(x).view(-1, words), y.view(-1))
    return step_of(t, model, t.optim.AdamW(model.parameters(), 1e-3, **options), loss_of, inside)


def resnet(t: Any, tf32: bool, dtype: Any = None, last: bool = False, inside: Way = as_it_is, **options: Any) -> Call:
    nn, F = t.nn, t.nn.functional
    t.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, channels: int, out: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
            self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
            self.short = nn.Sequential() if stride == 1 and channels == out else nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x: Any) -> Any:
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))

    layers: list[Any] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for channels, out, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(channels, out, stride), Block(out, out, 1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)).to(DEVICE)
    x, y = t.randn(256, 3, 32, 32).to(DEVICE), t.randint(0, 10, (256,)).to(DEVICE)
    if last:
        model, x = model.to(memory_format=t.channels_last), x.to(memory_format=t.channels_last)

    t.backends.cudnn.allow_tf32 = tf32

    def loss_of(m: Any) -> Any:
        with t.autocast("cuda", dtype=dtype or t.bfloat16, enabled=dtype is not None):
            return F.cross_entropy(m(x), y)
    optimizer = t.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, **options)
    return step_of(t, model, optimizer, loss_of, inside)


NANO, GPT2 = (6, 384, 6, 64, 256, 65), (12, 768, 12, 16, 1024, 50257)
STEPS = {"mnist": ("MNIST MLP step, 128x784-512-256-10, Adam", mnist),
         "nanogpt": ("nanoGPT-char step (6x384, B64, T256, bf16)", lambda t, *way, **o: gpt(t, *NANO, *way, **o)),
         "resnet_tf32": ("ResNet-18 CIFAR step, batch 256, tf32", lambda t, *way, **o: resnet(t, True, None, False, *way, **o)),
         "resnet": ("ResNet-18 CIFAR step, batch 256, fp32", lambda t, *way, **o: resnet(t, False, None, False, *way, **o)),
         "resnet_bf16": ("ResNet-18 CIFAR step, batch 256, bf16, channels last",
                         lambda t, *way, **o: resnet(t, True, t.bfloat16, True, *way, **o)),
         "gpt2": ("GPT-2 124M step (B16, T1024, bf16)", lambda t, *way, **o: gpt(t, *GPT2, *way, **o)),
         "chain": ("20 ops, forward and backward", lambda t, *way, **o: chain(t, *way))}


def ways() -> dict[str, Callable[[str], Call]]:
    """From a way to go to the function that makes a step which goes it."""
    import torch

    import flambeau

    def jax_step(name: str) -> Call:
        import gpu_jax
        return {"mnist": gpu_jax.mnist, "nanogpt": lambda: gpu_jax.gpt(*NANO), "gpt2": lambda: gpu_jax.gpt(*GPT2),
                "chain": gpu_jax.chain}[name]()

    made = {name: make for name, (_, make) in STEPS.items()}
    return {"flambeau": lambda name: made[name](flambeau), "compiled": lambda name: flambeau.compile(made[name](flambeau)),
            "torch": lambda name: made[name](torch), "torch.compile": lambda name: made[name](torch, torch.compile, fused=True),
            "reduce-overhead": lambda name: made[name](
                torch, lambda f: torch.compile(f, mode="reduce-overhead"), fused=True), "jax": jax_step}


TABLES = {"small": small, "bandwidth": bandwidth, "products": products}


def show(name: str, times: dict[str, float | None]) -> None:
    cells = [f"{what} {'-' if s is None else f'{s * 1e6:10.1f} us'}" for what, s in times.items()]
    ours = times.get("compiled") or times.get("flambeau")
    peers = [s for what, s in times.items() if what not in ("flambeau", "compiled") and s]
    ratio = f"{ours / min(peers):.2f}" if ours and peers else "-"
    print(f"| {name} | {' | '.join(cells)} | {ratio} |", flush=True)


def peak(library: Any, step: Call) -> float:
    """The most memory, in GiB, that a library's tensors and graphs take during a step."""
    library.cuda.synchronize()
    library.cuda.reset_peak_memory_stats()
    step()
    library.cuda.synchronize()
    return library.cuda.max_memory_allocated() / 2**30


def tried(make: Callable[[], Any], what: str) -> Any:
    try:
        return make()
    except Exception as error:  # a row that cannot be measured says why
        print(f"  {what}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=[*TABLES, *STEPS])
    parser.add_argument("--ways", nargs="*", default=None, help="of steps; all of them if none is named")
    given = parser.parse_args()
    import torch

    import flambeau
    wait = {"flambeau": flambeau.cuda.synchronize, "torch": torch.cuda.synchronize}
    for name in [n for n in given.rows if n in TABLES]:
        ours, theirs = TABLES[name](flambeau), TABLES[name](torch)
        for row, call in ours.items():
            ready = {what: c for what, c in (("flambeau", call), ("torch", theirs[row]))
                     if tried(lambda c=c: [c()], f"{row}, {what}") is not None}
            times = seconds(ready, wait)
            show(row, {what: times.get(what) for what in wait})
    for name in [n for n in given.rows if n in STEPS]:
        title = STEPS[name][0]
        ready = {what: step for what, make in ways().items() if (given.ways is None or what in given.ways)
                 and (step := tried(lambda make=make, name=name: make(name), f"{title}, {what}")) is not None}
        losses = {what: tried(lambda s=s: [float(s()) for _ in range(4)], f"{title}, {what}") for what, s in ready.items()}
        print(f"  {title}: losses of the first steps {losses}", flush=True)
        library = {what: flambeau if what in ("flambeau", "compiled") else torch for what in ready}
        peaks = {what: round(peak(library[what], ready[what]), 2) for what in ready if losses[what] and what != "jax"}
        print(f"  {title}: GiB in use at most, with what other ways of the library hold {peaks}", flush=True)
        ends = {what: library[what].cuda.synchronize for what in ready}
        show(title, seconds({what: ready[what] for what in ready if losses[what]}, ends, rounds=4, least=0.3))


if __name__ == "__main__":
    main()
