"""A small GPT that learns to write, one character at a time.

The same parts as the large ones: embeddings of characters and of positions, blocks of causal self-attention and a
feed-forward network with LayerNorm before each, AdamW with weight decay on the matrices only, a cosine schedule with
warm-up, gradients clipped by their norm. It reads Python's language reference and then writes some of its own.
The whole step is compiled: its first calls build a native program, the others run it.

Prints the size of text and model, the loss as it falls (from about 4.7 to 1.4), and 500 characters of new text.
"""

import math

from common import Progress, command_line, python_reference

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim


class SelfAttention(nn.Module):
    """Every position looks back at the ones before it, with several heads side by side."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)  # queries, keys and values in one product
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.project(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        # Each part adds to x instead of replacing it: gradients reach the first layer undiminished.
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, characters, length, layers=2, heads=4, width=128):
        super().__init__()
        self.length = length
        self.characters = nn.Embedding(characters, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        self.apply(self._start_small)

    @staticmethod
    def _start_small(module):
        # With small weights the first predictions are nearly even, and the loss starts at log(characters).
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.05)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, text):
        x = self.characters(text) + self.positions(torch.arange(text.shape[1], device=text.device))
        return self.head(self.norm(self.blocks(x)))


def make_optimizer(model, rate):
    """AdamW in two groups: matrices decay, while biases and norms, which only shift and scale, do not."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                       lr=rate, betas=(0.9, 0.99))


def rate_factor(step, steps, warmup):
    """Up in a straight line while Adam's averages are still rough, then down along a cosine to a tenth."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def write(model, alphabet, start, length, temperature=0.7):
    """Text from the model: each character is drawn from what it expects, then becomes part of what it reads."""
    model.eval()
    text = torch.tensor([[alphabet.index(c) for c in start]])
    with torch.no_grad():
        for _ in range(length):
            logits = model(text[:, -model.length:])[:, -1]  # it can look back `length` characters, not further
            probabilities = F.softmax(logits / temperature, dim=-1)
            text = torch.cat([text, torch.multinomial(probabilities, 1)], dim=1)
    return "".join(alphabet[i] for i in text[0].tolist())


def main(steps=700, seed=0, quiet=False, batch=16, length=64, sample=500):
    torch.manual_seed(seed)
    text = python_reference()
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    data = torch.tensor([number[c] for c in text])
    model = GPT(len(alphabet), length)
    if not quiet:
        weights = sum(p.numel() for p in model.parameters())
        print(f"{len(text)} characters, {len(alphabet)} different; {weights} weights")
    optimizer = make_optimizer(model, 4e-3)
    warmup = min(50, steps // 5 + 1)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, steps, warmup))
    window = torch.arange(length + 1)

    @torch.compile
    def step(rows):
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    losses = []
    bar = Progress(steps, quiet)
    for _ in bar:
        loss = step(data[torch.randint(0, len(data) - length, (batch, 1)) + window])
        schedule.step()  # outside of the step: the rate is a number that the program reads
        losses.append(loss.item())
        bar.note(loss=losses[-1])

    if not quiet:
        print("\n" + write(model, alphabet, "The ", sample))
    return losses


if __name__ == "__main__":
    command_line(main, __doc__)
