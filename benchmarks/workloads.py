"""The training programs that the benchmarks run, each written once for both `torch` and `flambeau`.

A workload is a function that, given the framework, makes its `Training`: the model, the optimizer, the loss of a batch and the
batch. From the same seed both frameworks make the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Step = Callable[..., Any]


@dataclass
class Training:
    """A training program taken apart, so that any part of it, or the whole step, can be handed to a compiler."""

    model: Any
    optimizer: Any
    loss_of: Step  # inputs -> the loss; or the loss and a tuple of states that stand in for the last inputs of the next step
    inputs: tuple[Any, ...]
    clip: Callable[[], Any] | None = None

    def step(self, loss_of: Step | None = None) -> Step:
        """The loop body that every PyTorch program has, as a function of the batch; returns the loss and the states."""
        optimizer, clip, loss_of = self.optimizer, self.clip, loss_of or self.loss_of

        def step(*inputs: Any) -> Any:
            optimizer.zero_grad()
            result = loss_of(*inputs)
            loss, states = result if isinstance(result, tuple) else (result, ())
            loss.backward()
            if clip is not None:
                clip()
            optimizer.step()
            return loss, states
        return step

    def loop(self, step: Step | None = None) -> Callable[[], Any]:
        """A call of this takes one step, on the same batch each time, and returns the loss."""
        step, inputs = step or self.step(), self.inputs

        def run() -> Any:
            nonlocal inputs
            loss, states = step(*inputs)
            if states:
                inputs = inputs[:-len(states)] + states
            return loss
        return run


Maker = Callable[[Any], Training]
WORKLOADS: dict[str, tuple[str, float | None, Maker]] = {}  # name -> what it is, the limit for eager / torch eager, the maker


def workload(what: str, limit: float | None) -> Callable[[Maker], Maker]:
    def add(make: Maker) -> Maker:
        WORKLOADS[make.__name__] = what, limit, make
        return make
    return add


def made(name: str, mod: Any) -> Training:
    mod.manual_seed(0)
    return WORKLOADS[name][2](mod)


@workload("tiny MLP 16x8-32-32-1, tanh, Adam", 0.5)
def tiny_mlp(mod: Any) -> Training:
    nn = mod.nn
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    x, y = mod.randn(16, 8), mod.randn(16, 1)
    loss = nn.MSELoss()
    return Training(model, mod.optim.Adam(model.parameters(), lr=1e-3), lambda x, y: loss(model(x), y), (x, y))


@workload("two-layer net 64x1000-100-10, SGD", 0.8)
def two_layer(mod: Any) -> Training:
    nn = mod.nn
    model = nn.Sequential(nn.Linear(1000, 100), nn.ReLU(), nn.Linear(100, 10))
    x, y = mod.randn(64, 1000), mod.randn(64, 10)
    loss = nn.MSELoss()
    return Training(model, mod.optim.SGD(model.parameters(), lr=1e-3), lambda x, y: loss(model(x), y), (x, y))


@workload("MNIST MLP 128x784-512-256-10, Adam", 0.8)
def mnist_mlp(mod: Any) -> Training:
    nn = mod.nn
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    x, y = mod.rand(128, 784), mod.randint(0, 10, (128,))
    loss = nn.CrossEntropyLoss()
    return Training(model, mod.optim.Adam(model.parameters(), lr=1e-3), lambda x, y: loss(model(x), y), (x, y))


@workload("MNIST CNN of PyTorch's example, batch 64, Adam, dropout", 1.0)
def mnist_cnn(mod: Any) -> Training:
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
    optimizer = mod.optim.Adam(model.parameters(), lr=1e-3)
    return Training(model, optimizer, lambda x, y: F.nll_loss(model(x), y), (x, y))


@workload("ResNet-8 CIFAR 3x32x32, batch 32, SGD momentum", 1.0)
def resnet8(mod: Any) -> Training:
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
    return Training(model, optimizer, lambda x, y: F.cross_entropy(model(x), y), (x, y))


def gpt_of(mod: Any, batch: int, length: int, longest: int) -> Training:
    """A GPT for up to `longest` tokens, and a first batch."""
    nn, F = mod.nn, mod.nn.functional
    width, heads, words = 128, 4, 65

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (t.view(batch, length, heads, width // heads).transpose(1, 2)
                       for t in self.qkv(self.norm1(x)).split(width, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, width))
            return x + self.feed(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(longest, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(4)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, text: Any) -> Any:
            return self.head(self.norm(self.blocks(self.tokens(text) + self.positions(mod.arange(text.shape[1])))))

    model = GPT()
    text, target = mod.randint(0, words, (batch, length)), mod.randint(0, words, (batch, length))
    optimizer = mod.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    return Training(model, optimizer, lambda text, target: F.cross_entropy(model(text).view(-1, words), target.view(-1)),
                    (text, target))


@workload("GPT 4 layers, 128 wide, 12x64 tokens, AdamW", 1.0)
def gpt(mod: Any) -> Training:
    return gpt_of(mod, 12, 64, 64)


@workload("LSTM LM 2x256, 20x35 tokens, vocabulary 1000, dropout, clipped SGD", 1.0)
def lstm_lm(mod: Any) -> Training:
    nn, F = mod.nn, mod.nn.functional
    words = 1000
    embed, drop, lstm = nn.Embedding(words, 256), nn.Dropout(0.2), nn.LSTM(256, 256, 2, dropout=0.2)
    model = nn.ModuleList([embed, drop, lstm, nn.Linear(256, words)])
    text, target = mod.randint(0, words, (35, 20)), mod.randint(0, words, (35 * 20,))
    state = mod.zeros(2, 20, 256), mod.zeros(2, 20, 256)
    optimizer = mod.optim.SGD(model.parameters(), lr=1.0)

    def loss_of(text: Any, target: Any, *state: Any) -> Any:
        output, state = lstm(drop(embed(text)), state)
        loss = F.cross_entropy(model[3](drop(output)).view(-1, words), target)
        return loss, tuple(s.detach() for s in state)
    return Training(model, optimizer, loss_of, (text, target, *state),
                    clip=lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.25))


@workload("word2vec, vocabulary 10 k, dim 100, batch 512, 5 negatives, SparseAdam", 0.8)
def word2vec(mod: Any) -> Training:
    nn, F = mod.nn, mod.nn.functional
    words, width, batch = 10_000, 100, 512
    centre, context = nn.Embedding(words, width, sparse=True), nn.Embedding(words, width, sparse=True)
    model = nn.ModuleList([centre, context])
    centres, near = mod.randint(0, words, (batch,)), mod.randint(0, words, (batch,))
    far = mod.randint(0, words, (batch, 5))
    optimizer = mod.optim.SparseAdam(model.parameters(), lr=1e-3)

    def loss_of(centres: Any, near: Any, far: Any) -> Any:
        v = centre(centres)
        positive = F.logsigmoid((v * context(near)).sum(1))
        negative = F.logsigmoid(-mod.bmm(context(far), v.unsqueeze(2)).squeeze(2)).sum(1)
        return -(positive + negative).mean()
    return Training(model, optimizer, loss_of, (centres, near, far))


@workload("VAE 128x784-400-20, Adam", None)
def vae(mod: Any) -> Training:
    nn, F = mod.nn, mod.nn.functional
    layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((784, 400), (400, 20), (400, 20), (20, 400), (400, 784)))
    x = mod.rand(128, 784)

    def loss_of(x: Any) -> Any:
        hidden = F.relu(layers[0](x))
        mean, log_variance = layers[1](hidden), layers[2](hidden)
        code = mean + mod.exp(0.5 * log_variance) * mod.randn_like(mean)
        drawn = mod.sigmoid(layers[4](F.relu(layers[3](code))))
        distance = -0.5 * mod.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return F.binary_cross_entropy(drawn, x, reduction="sum") + distance
    return Training(layers, mod.optim.Adam(layers.parameters(), lr=1e-3), loss_of, (x,))
