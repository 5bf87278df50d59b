"""Fully sharded training as PyTorch's tutorials write it; runs on either library."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width=8, depth=3):
        super().__init__()
        self.layers, self.out = nn.ModuleList([Layer(width) for _ in range(depth)]), nn.Linear(width, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def build(mesh):
    torch.manual_seed(0)
    model = Model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def main(folder):
    dist.init_process_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    model, optimizer = build(mesh)
    assert isinstance(model, FSDPModule) and isinstance(model, Model)
    assert all(isinstance(p, DTensor) and p.placements == (Shard(0),) for p in model.parameters())
    torch.manual_seed(1)
    x = torch.randn(6, 4 * world, 8)
    for step in range(6):
        part = x[step, 4 * rank:4 * rank + 4]
        loss = F.mse_loss(model(part), part[:, :2].sin())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item() / world:.6f}", flush=True)
    norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
    place = os.path.join(folder, "checkpoint")
    state, rule = get_state_dict(model, optimizer)
    dcp.save({"model": state, "optimizer": rule}, checkpoint_id=place)
    again, other = build(mesh)
    state, rule = get_state_dict(again, other)
    wanted = {"model": state, "optimizer": rule}
    dcp.load(wanted, checkpoint_id=place)
    set_state_dict(again, other, model_state_dict=wanted["model"], optim_state_dict=wanted["optimizer"])
    for (name, a), (_, b) in zip(model.named_parameters(), again.named_parameters()):
        assert torch.equal(a.full_tensor(), b.full_tensor()), name
        assert torch.equal(optimizer.state[a]["exp_avg"].full_tensor(), other.state[b]["exp_avg"].full_tensor()), name
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
