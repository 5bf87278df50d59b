"""Data-parallel training as PyTorch's tutorials write it; runs on either library."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1, self.relu, self.net2 = nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def main(folder):
    dist.init_process_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    assert rank == int(os.environ["RANK"]) and world == int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    inputs = torch.randn(64, 10)
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long())
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(ToyModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(x), len(x)])
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        if rank == 0:
            print(f"epoch {epoch} loss {total[0].item() / total[1].item():.6f}", flush=True)
    path = os.path.join(folder, "model.pt")
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    again = DDP(ToyModel())
    again.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    for a, b in zip(model.parameters(), again.parameters()):
        assert torch.equal(a, b)
    with model.no_sync():
        criterion(model(x), y).backward()
    criterion(model(x), y).backward()
    gathered = [torch.zeros_like(model.module.net2.bias) for _ in range(world)]
    dist.all_gather(gathered, model.module.net2.bias.detach())
    assert all(torch.equal(gathered[0], g) for g in gathered)
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
