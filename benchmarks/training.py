"""Whole training steps against PyTorch, in one interleaved run: forward, backward and update, both eager.

    python benchmarks/training.py                    # everything
    python benchmarks/training.py tiny_mlp gpt       # some
    python benchmarks/training.py --profile gpt      # where flambeau's time goes in one of them

Both sides start from the same seed and take the same steps; that their losses agree is checked before anything is
measured. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import pstats
from collections.abc import Callable
from typing import Any

import torch
from harness import Report, interleave

import flambeau
import flambeau.nn.functional
import flambeau.optim

Step = Callable[[], Any]
WORKLOADS: dict[str, tuple[str, float | None, Callable[[Any], Step]]] = {}


def workload(what: str, limit: float | None) -> Callable[[Callable[[Any], Step]], Callable[[Any], Step]]:
    """Adds a row of the table: a function that, given the framework, makes one training step that returns its loss."""
    def add(make: Callable[[Any], Step]) -> Callable[[Any], Step]:
        WORKLOADS[make.__name__] = what, limit, make
        return make
    return add


def stepper(optimizer: Any, loss_of: Step) -> Step:
    """The loop body that every PyTorch program has."""
    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss
    return step


@workload("tiny MLP 16x8-32-32-1, tanh, Adam", 0.5)
def tiny_mlp(mod: Any) -> Step:
    nn = mod.nn
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    x, y = mod.randn(16, 8), mod.randn(16, 1)
    loss = nn.MSELoss()
    return stepper(mod.optim.Adam(model.parameters(), lr=1e-3), lambda: loss(model(x), y))


@workload("two-layer net 64x1000-100-10, SGD", 0.8)
def two_layer(mod: Any) -> Step:
    nn = mod.nn
    model = nn.Sequential(nn.Linear(1000, 100), nn.ReLU(), nn.Linear(100, 10))
    x, y = mod.randn(64, 1000), mod.randn(64, 10)
    loss = nn.MSELoss()
    return stepper(mod.optim.SGD(model.parameters(), lr=1e-3), lambda: loss(model(x), y))


@workload("MNIST MLP 128x784-512-256-10, Adam", 0.8)
def mnist_mlp(mod: Any) -> Step:
    nn = mod.nn
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    x, y = mod.rand(128, 784), mod.randint(0, 10, (128,))
    loss = nn.CrossEntropyLoss()
    return stepper(mod.optim.Adam(model.parameters(), lr=1e-3), lambda: loss(model(x), y))


@workload("MNIST CNN of PyTorch's example, batch 64, Adam, dropout", 1.0)
def mnist_cnn(mod: Any) -> Step:
    nn, F = mod.nn, mod.nn.functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
            self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
            self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            x = F.relu(self.conv2(F.relu(self.conv1(x))))
            x = mod.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
            return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)

    model = Net()
    x, y = mod.rand(64, 1, 28, 28), mod.randint(0, 10, (64,))
    return stepper(mod.optim.Adam(model.parameters(), lr=1e-3), lambda: F.nll_loss(model(x), y))


@workload("ResNet-8 CIFAR 3x32x32, batch 32, SGD momentum", 1.0)
def resnet8(mod: Any) -> Step:
    nn, F = mod.nn, mod.nn.functional

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            self.shortcut = nn.Sequential() if inputs == outputs else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))

    model = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16, 16, 1),
                          Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    x, y = mod.randn(32, 3, 32, 32), mod.randint(0, 10, (32,))
    optimizer = mod.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, weight_decay=5e-4)
    return stepper(optimizer, lambda: F.cross_entropy(model(x), y))


@workload("GPT 4 layers, 128 wide, 12x64 tokens, AdamW", 1.0)
def gpt(mod: Any) -> Step:
    nn, F = mod.nn, mod.nn.functional
    width, heads, batch, length, words = 128, 4, 12, 64, 65

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            q, k, v = (t.view(batch, length, heads, width // heads).transpose(1, 2)
                       for t in self.qkv(self.norm1(x)).split(width, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, width))
            return x + self.feed(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(4)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, text: Any) -> Any:
            return self.head(self.norm(self.blocks(self.tokens(text) + self.positions(mod.arange(length)))))

    model = GPT()
    text, target = mod.randint(0, words, (batch, length)), mod.randint(0, words, (batch, length))
    optimizer = mod.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    return stepper(optimizer, lambda: F.cross_entropy(model(text).view(-1, words), target.view(-1)))


@workload("LSTM LM 2x256, 20x35 tokens, vocabulary 1000, dropout, clipped SGD", 1.0)
def lstm_lm(mod: Any) -> Step:
    nn, F = mod.nn, mod.nn.functional
    words = 1000
    embed, drop, lstm = nn.Embedding(words, 256), nn.Dropout(0.2), nn.LSTM(256, 256, 2, dropout=0.2)
    model = nn.ModuleList([embed, drop, lstm, nn.Linear(256, words)])
    text, target = mod.randint(0, words, (35, 20)), mod.randint(0, words, (35 * 20,))
    state = mod.zeros(2, 20, 256), mod.zeros(2, 20, 256)
    optimizer = mod.optim.SGD(model.parameters(), lr=1.0)

    def step() -> Any:
        nonlocal state
        optimizer.zero_grad()
        state = tuple(s.detach() for s in state)
        output, state = lstm(drop(embed(text)), state)
        loss = F.cross_entropy(model[3](drop(output)).view(-1, words), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss
    return step


@workload("word2vec, vocabulary 10 k, dim 100, batch 512, 5 negatives, SparseAdam", 0.8)
def word2vec(mod: Any) -> Step:
    nn, F = mod.nn, mod.nn.functional
    words, width, batch = 10_000, 100, 512
    centre, context = nn.Embedding(words, width, sparse=True), nn.Embedding(words, width, sparse=True)
    centres, near = mod.randint(0, words, (batch,)), mod.randint(0, words, (batch,))
    far = mod.randint(0, words, (batch, 5))
    optimizer = mod.optim.SparseAdam([*centre.parameters(), *context.parameters()], lr=1e-3)

    def loss_of() -> Any:
        v = centre(centres)
        positive = F.logsigmoid((v * context(near)).sum(1))
        negative = F.logsigmoid(-mod.bmm(context(far), v.unsqueeze(2)).squeeze(2)).sum(1)
        return -(positive + negative).mean()
    return stepper(optimizer, loss_of)


@workload("VAE 128x784-400-20, Adam", None)
def vae(mod: Any) -> Step:
    nn, F = mod.nn, mod.nn.functional
    layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((784, 400), (400, 20), (400, 20), (20, 400), (400, 784)))
    x = mod.rand(128, 784)

    def loss_of() -> Any:
        hidden = F.relu(layers[0](x))
        mean, log_variance = layers[1](hidden), layers[2](hidden)
        code = mean + mod.exp(0.5 * log_variance) * mod.randn_like(mean)
        drawn = mod.sigmoid(layers[4](F.relu(layers[3](code))))
        distance = -0.5 * mod.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return F.binary_cross_entropy(drawn, x, reduction="sum") + distance
    return stepper(mod.optim.Adam(layers.parameters(), lr=1e-3), loss_of)


def made(name: str, mod: Any) -> Step:
    mod.manual_seed(0)
    return WORKLOADS[name][2](mod)


def check(name: str, steps: dict[str, Step]) -> None:
    """A fast step that computes something else would be no result."""
    flambeau.manual_seed(1)
    torch.manual_seed(1)
    for number in range(3):
        ours, theirs = (steps[side]().item() for side in ("flambeau", "torch"))
        if not math.isclose(ours, theirs, rel_tol=1e-4):
            raise AssertionError(f"{name}: at step {number} flambeau's loss is {ours}, torch's {theirs}")


def measure(names: list[str], rounds: int) -> None:
    report = Report()
    for name in names:
        what, limit, _ = WORKLOADS[name]
        steps = {"flambeau": made(name, flambeau), "torch": made(name, torch)}
        check(name, steps)
        best = interleave(steps, rounds=rounds)
        report.row(what, best["flambeau"], best["torch"], limit)


def profile(name: str, steps: int = 30) -> None:
    """The functions in which flambeau spends the time of this step."""
    step = made(name, flambeau)
    for _ in range(3):
        step()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(steps):
        step()
    profiler.disable()
    print(f"{name}: {steps} steps")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(22)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead of the comparison")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    names = options.names or list(WORKLOADS)
    if options.profile:
        for name in names:
            profile(name)
    else:
        measure(names, options.rounds)


if __name__ == "__main__":
    main()
