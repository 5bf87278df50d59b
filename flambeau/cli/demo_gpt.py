"""A GPT that learns to write Python's language reference, one character at a time (examples/char_gpt.py explains its parts)."""

from __future__ import annotations

import math

from .. import Tensor, arange, cat, multinomial, nn, no_grad, optim, randint, tensor
from ..nn import functional as F
from .demo import Task

STEPS = 1200
LENGTH, BATCH, WIDTH, HEADS, LAYERS = 64, 16, 128, 4, 3
START = "The "


class Block(nn.Module):
    """Attention to what came before, then a feed-forward network; each adds to x."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.project(self.norm1(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norm2(x))


class GPT(nn.Module):
    """Characters in, for each position what it expects next out."""

    def __init__(self, characters: int):
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters, bias=False)
        for name, p in self.named_parameters():
            if p.dim() > 1:  # small weights: the loss starts at log(characters)
                nn.init.normal_(p, std=0.05)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, text: Tensor) -> Tensor:
        x = self.characters(text) + self.positions(arange(text.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def reference(characters: int = 400_000) -> str:
    """The beginning of the language reference, which comes with Python's library as the text behind help()."""
    from pydoc_data.topics import topics
    text = "\n".join(topics[name] for name in sorted(topics))[:characters]
    return "".join(c for c in text if c == "\n" or " " <= c <= "~")  # plain ASCII keeps the alphabet small


def make(steps: int) -> Task:
    """The model, its data and its optimizer for so many steps."""
    text = reference()
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    data = tensor([number[c] for c in text])
    model = GPT(len(alphabet))
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.99))
    warmup = min(50, steps // 5 + 1)

    def factor(step: int) -> float:
        """Up in a line, then down along a cosine to a tenth."""
        if step < warmup:
            return (step + 1) / warmup
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))

    window = arange(LENGTH + 1)

    def batch() -> tuple[Tensor]:
        return (data[randint(0, len(data) - LENGTH, (BATCH, 1)) + window],)

    def loss_of(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    weights = sum(p.numel() for p in model.parameters())
    about = (f"A GPT of {weights:,} weights reads {len(text):,} characters of Python's language reference "
             f"({len(alphabet)} different ones).")
    return Task(about, model, optimizer, optim.lr_scheduler.LambdaLR(optimizer, factor), batch, loss_of, "token",
                BATCH * LENGTH, lambda: "What it writes now:\n\n" + write(model, alphabet, START, 400))


def write(model: GPT, alphabet: list[str], start: str, length: int, temperature: float = 0.7) -> str:
    """Text from the model: each character is drawn from what it expects, then becomes part of what it reads."""
    text = tensor([[alphabet.index(c) for c in start]])
    with no_grad():
        for _ in range(length):
            logits = model(text[:, -LENGTH:])[:, -1]
            text = cat([text, multinomial(F.softmax(logits / temperature, dim=-1), 1)], dim=1)
    return "".join(alphabet[i] for i in text[0].tolist())
