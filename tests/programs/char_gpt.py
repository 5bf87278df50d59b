"""A small GPT: tied weights, decay groups, gradient accumulation, warm-up, evaluation, checkpoint, sampling."""
import inspect
import math
import os
import tempfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group  # noqa: F401
from torch.nn import functional as F


@dataclass
class Config:
    vocab: int = 24
    context: int = 12
    width: int = 16
    heads: int = 4
    depth: int = 2
    dropout: float = 0.1
    fused_attention: bool = True


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.qkv, self.out = c, nn.Linear(c.width, 3 * c.width, bias=False), nn.Linear(c.width, c.width)
        self.drop = nn.Dropout(c.dropout)
        self.fused = c.fused_attention and hasattr(F, "scaled_dot_product_attention")
        if not self.fused:
            self.register_buffer("mask", torch.tril(torch.ones(c.context, c.context)).view(1, 1, c.context, c.context), persistent=False)

    def forward(self, x):
        b, t, w = x.size()
        q, k, v = (z.view(b, t, self.c.heads, -1).transpose(1, 2) for z in self.qkv(x).split(w, dim=2))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.c.dropout if self.training else 0.0)
        else:
            a = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
            y = self.drop(F.softmax(a.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")), dim=-1)) @ v
        return self.drop(self.out(y.transpose(1, 2).contiguous().view(b, t, w)))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.before, self.attention, self.middle = nn.LayerNorm(c.width), Attention(c), nn.LayerNorm(c.width, bias=False)
        self.mlp = nn.ModuleDict({"up": nn.Linear(c.width, 4 * c.width), "act": nn.GELU(approximate="tanh"), "down": nn.Linear(4 * c.width, c.width)})

    def forward(self, x):
        x = x + self.attention(self.before(x))
        m = self.mlp
        return x + m.down(m.act(m.up(self.middle(x)))) if hasattr(m, "down") else x


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.token, self.place = c, nn.Embedding(c.vocab, c.width), nn.Embedding(c.context, c.width)
        self.layers, self.norm = nn.ModuleList(Layer(c) for _ in range(c.depth)), nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, c.vocab, bias=False)
        self.token.weight = self.head.weight
        self.apply(self.start)

    def start(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, targets=None):
        x = self.token(tokens) + self.place(torch.arange(tokens.size(1), device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        scores = self.head(self.norm(x))
        return scores, None if targets is None else F.cross_entropy(scores.view(-1, scores.size(-1)), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def write(self, tokens, count, top):
        for _ in range(count):
            scores = self(tokens[:, -self.c.context:])[0][:, -1, :] / 0.9
            best, _ = torch.topk(scores, top)
            scores[scores < best[:, [-1]]] = -float("Inf")
            tokens = torch.cat((tokens, torch.multinomial(F.softmax(scores, dim=-1), num_samples=1)), dim=1)
        return tokens


folder = tempfile.mkdtemp()
((np.arange(900) ** 2 // 7) % 24).astype(np.uint16).tofile(os.path.join(folder, "text.bin"))
device_type = "cuda" if torch.cuda.is_available() else "cpu"
for dtype, fused in ((torch.float32, True), (torch.float32, False), (torch.bfloat16, False)):
    torch.manual_seed(1337)
    digits = 5 if dtype is torch.float32 else 1
    context = nullcontext() if dtype is torch.float32 else torch.amp.autocast(device_type=device_type, dtype=dtype)
    model = Model(Config(fused_attention=fused, dropout=0.0 if fused else 0.1))

    def batch():
        text = np.memmap(os.path.join(folder, "text.bin"), dtype=np.uint16, mode="r")
        at = torch.randint(len(text) - 13, (4,))
        x, y = (torch.stack([torch.from_numpy(text[i + k:i + k + 12].astype(np.int64)) for i in at]) for k in (0, 1))
        return (x.pin_memory(), y.pin_memory()) if device_type == "cuda" else (x, y)

    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    groups = [{"params": [p for p in named.values() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0.0}]
    extra = {"fused": True} if "fused" in inspect.signature(torch.optim.AdamW).parameters and device_type == "cuda" else {}
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), **extra)
    scaler = torch.amp.GradScaler(device_type, enabled=dtype is torch.float16)
    for step in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1.0, (step + 1) / 3)
        for _ in range(2):
            x, y = batch()
            with context:
                loss = model(x, y)[1] / 2
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step} loss {loss.item() * 2:.{digits}f} norm {norm:.{min(digits, 2)}f}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "config": asdict(model.c)}, os.path.join(folder, "c.pt"))
    saved = torch.load(os.path.join(folder, "c.pt"), map_location="cpu")
    again = Model(Config(**saved["config"]))
    print(again.load_state_dict(saved["model"]), sorted(saved["optimizer"]), len(named))
    model.eval(), again.eval()
    losses = torch.zeros(3)
    with torch.no_grad():
        for k in range(3):
            losses[k] = again(*batch())[1].item()
    print(f"{losses.mean():.{min(digits, 2)}f}")
    if dtype is torch.float32:
        print(again.write(torch.zeros((1, 1), dtype=torch.long), 16, top=5)[0].tolist())
