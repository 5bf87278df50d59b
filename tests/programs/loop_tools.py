"""Around the loop: seeds, splits, samplers, workers, averaging, plateaus, custom optimizers and schedules, autocast."""
import math
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, CyclicLR, LinearLR, OneCycleLR, ReduceLROnPlateau, SequentialLR, _LRScheduler
from torch.optim.optimizer import Optimizer
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, SubsetRandomSampler, TensorDataset, WeightedRandomSampler, get_worker_info, random_split

random.seed(42), np.random.seed(42), torch.manual_seed(42), torch.cuda.manual_seed_all(42)
torch.backends.cudnn.deterministic = True
X = torch.randn(60, 5)
y = (X.sum(1) > 0).long()
data = TensorDataset(X, y)
train, valid = random_split(data, [0.8, 0.2], generator=torch.Generator().manual_seed(1))


def build():
    return nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 2))


class Bounded(Optimizer):
    def __init__(self, params, lr=1e-2, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"], state["mean"] = 0, torch.zeros_like(p, memory_format=torch.preserve_format)
                state["step"] += 1
                state["mean"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                p.addcdiv_(state["mean"], state["mean"].abs().add_(1e-3), value=-group["lr"])


class Warmup(_LRScheduler):
    def get_lr(self):
        return [base * min(1.0, (self.last_epoch + 1) / 4) * (0.5 + 0.5 * math.cos(self.last_epoch / 10)) for base in self.base_lrs]


folder = tempfile.mkdtemp()
for make in (lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9, nesterov=True), Bounded):
    model = build()
    optimizer = make(model.parameters())
    plateau, best = ReduceLROnPlateau(optimizer, "min", patience=0, factor=0.5), float("inf")
    average, slow, swa = AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)), SWALR(optimizer, swa_lr=0.05)
    for epoch in range(5):
        model.train()
        for a, b in DataLoader(train, batch_size=16, shuffle=True, drop_last=True):
            loss = F.cross_entropy(model(a), b)
            optimizer.zero_grad(), loss.backward(), optimizer.step()
            slow.update_parameters(model)
        model.eval()
        with torch.no_grad():
            score = torch.stack([F.cross_entropy(model(a), b) for a, b in DataLoader(valid, batch_size=6)]).mean().item()
        plateau.step(score)
        if epoch > 2:
            average.update_parameters(model), swa.step()
        if score < best:
            best = score
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": best, "rng": torch.get_rng_state()}, os.path.join(folder, "best.pt"))
        print(f"{epoch} {loss.item():.5f} {score:.5f} {optimizer.param_groups[0]['lr']:.4f}")
    update_bn(DataLoader(train, batch_size=16), average)
    print(average(X[:2]), slow.module[0].weight.sum(), average.n_averaged)
    saved = torch.load(os.path.join(folder, "best.pt"), map_location=lambda storage, location: storage)
    model.load_state_dict(saved["model"]), optimizer.load_state_dict(saved["optimizer"]), torch.set_rng_state(saved["rng"])
    print(saved["best"], torch.rand(2), optimizer)
for f in (lambda o: OneCycleLR(o, max_lr=0.1, total_steps=8), lambda o: CosineAnnealingWarmRestarts(o, T_0=2, T_mult=2), Warmup,
          lambda o: SequentialLR(o, [LinearLR(o, 0.1, total_iters=3), CyclicLR(o, 0.01, 0.1, step_size_up=3)], milestones=[3])):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule, rates = f(optimizer), []
    for _ in range(7):
        optimizer.step(), rates.append(round(optimizer.param_groups[0]["lr"], 6)), schedule.step()
    print(rates)


class Records(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, i):
        return {"image": np.full((2, 2), i, dtype=np.float32), "label": i, "name": f"n{i}", "weight": 0.5 * i, "pair": (i, torch.tensor([i]))}


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(0 if info is None else info.id, 10, 1 if info is None else info.num_workers))


for batch in DataLoader(Records(), batch_size=3, shuffle=True, num_workers=2):
    print(batch["image"].shape, batch["label"], batch["name"], batch["weight"], batch["pair"])
print([b.tolist() for b in DataLoader(Stream(), batch_size=2, num_workers=2)])
print([b.tolist() for _, b in DataLoader(data, batch_size=8, sampler=WeightedRandomSampler([1.0 / (1 + int(t)) for t in y], 16))])
print([b.tolist() for _, b in DataLoader(data, batch_size=8, sampler=SubsetRandomSampler(np.arange(0, 60, 5)))], list(BatchSampler(SequentialSampler(range(5)), 2, True)))
print(next(iter(DataLoader(data, batch_size=4, collate_fn=lambda rows: torch.LongTensor([int(b) for _, b in rows])))))
blocks = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.1)) for _ in range(4)])
z = torch.randn(3, 8, requires_grad=True)
checkpoint_sequential(blocks, 2, z, use_reentrant=False).sum().backward()
checkpoint(blocks[0], z, use_reentrant=True).mean().backward()
print(z.grad.norm())
scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())
with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
    out = model(X[:8])
    loss = F.cross_entropy(out, y[:8])
scaler.scale(loss).backward()
scaler.step(optimizer), scaler.update()
print(out.dtype, loss.dtype, f"{loss.item():.1f}")
