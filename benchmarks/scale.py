"""How far data, sharded and tensor parallel training pay: a model of a step on up to 4,096 ranks, from figures of your own.

    python benchmarks/scale.py                                     # a GPT-2 on processes like those of RESULTS.md
    python benchmarks/scale.py --latency 4e-6 --bandwidth 40e9 --rate 300e12 --tokens 16384
    python benchmarks/scale.py --batch 524288                      # a batch of so many tokens in all, which ranks share
    python -m flambeau.distributed.run --nproc-per-node 2 benchmarks/scale.py --measure   # latency, bandwidth and rate of here

The model (docs/scale.md says it in words): a rank computes 6 operations per parameter and token; a collective over p ranks
goes around a ring, so b bytes take 2 (p - 1) (a + b / (p w)) for an all_reduce with latency a and bandwidth w, and half of that
for an all_gather or a reduce_scatter; a share of the exchange hides behind the backward pass.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time

RANKS = [1 << k for k in range(13)]


@dataclasses.dataclass
class Machine:
    """latency: seconds of a message; bandwidth: bytes a second from a rank to the next; rate: operations a second of a rank."""

    latency: float = 3e-6
    bandwidth: float = 2.9e9
    rate: float = 60e9


@dataclasses.dataclass
class Model:
    """parameters in all, layers of this width, tokens of a rank's batch, bytes of an element; hidden: the share of an exchange
    that the backward pass can hide, at most; batch: tokens of all ranks together, which they share (0: each has `tokens`)."""

    parameters: float = 124e6
    layers: int = 12
    width: int = 768
    tokens: int = 2048
    element: int = 4
    hidden: float = 0.9
    batch: int = 0

    def tokens_of(self, ranks: int) -> float:
        """The tokens of each rank where so many share a batch."""
        return self.batch / ranks if self.batch else self.tokens


def all_reduce(m: Machine, ranks: int, nbytes: float) -> float:
    """Seconds of an all_reduce around a ring."""
    return 0.0 if ranks == 1 else 2 * (ranks - 1) * (m.latency + nbytes / ranks / m.bandwidth)


def all_gather(m: Machine, ranks: int, nbytes: float) -> float:
    """Seconds of an all_gather (or reduce_scatter) of that many bytes in all."""
    return all_reduce(m, ranks, nbytes) / 2


def compute(m: Machine, model: Model, ranks: int, share: float = 1.0) -> float:
    return 6 * model.parameters * model.tokens_of(ranks) * share / m.rate


def exposed(exchange: float, behind: float, share: float) -> float:
    """What is left of an exchange after what hides behind a computation."""
    return exchange - min(exchange * share, behind)


def data_parallel(m: Machine, model: Model, ranks: int) -> float:
    """One all_reduce of the gradients, behind the backward pass (two thirds of the computation)."""
    work = compute(m, model, ranks)
    return work + exposed(all_reduce(m, ranks, model.parameters * model.element), work * 2 / 3, model.hidden)


def fully_sharded(m: Machine, model: Model, ranks: int) -> float:
    """Parameters are gathered, layer by layer, before the forward and the backward pass, and gradients scattered."""
    work = compute(m, model, ranks)
    layer = model.parameters * model.element / model.layers
    exchange = 3 * model.layers * all_gather(m, ranks, layer)
    return work + exposed(exchange, work, model.hidden)


def tensor_parallel(m: Machine, model: Model, ranks: int) -> float:
    """Each rank has a share of every layer: two all_reduces of the activations per layer and pass, which nothing hides. All
    work on the same tokens, so a step gets shorter instead of larger."""
    activations = model.tokens_of(1) * model.width * model.element
    return compute(m, model, 1, 1 / ranks) + 4 * model.layers * all_reduce(m, ranks, activations)


WAYS = {"DDP": data_parallel, "fully_shard": fully_sharded, "tensor parallel": tensor_parallel}


def efficiency(name: str, m: Machine, model: Model, ranks: int) -> float:
    """How much of the ranks' computing power is left: 1 where exchange costs nothing."""
    ideal = compute(m, model, 1, 1 / ranks) if name == "tensor parallel" else compute(m, model, ranks)
    return ideal / WAYS[name](m, model, ranks)


def pays_until(name: str, m: Machine, model: Model) -> int:
    """The largest number of ranks at which half of their power is used."""
    return max([p for p in RANKS if efficiency(name, m, model, p) >= 0.5], default=1)


def memory(name: str, model: Model, ranks: int) -> float:
    """Bytes of parameters, gradients and Adam's two moments on a rank."""
    return 4 * model.parameters * model.element / (1 if name == "DDP" else ranks)


def shown(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def table(m: Machine, model: Model) -> str:
    lines = ["| ranks | " + " | ".join(f"{name}: step, efficiency, memory" for name in WAYS) + " |",
             "| --- |" + " --- |" * len(WAYS)]
    for ranks in RANKS:
        cells = [f"{shown(way(m, model, ranks))}, {100 * efficiency(name, m, model, ranks):.0f} %, "
                 f"{memory(name, model, ranks) / 2**30:.2g} GiB" for name, way in WAYS.items()]
        lines.append(f"| {ranks} | {' | '.join(cells)} |")
    lines.append("| pays until | " + " | ".join(f"{pays_until(name, m, model)} ranks" for name in WAYS) + " |")
    return "\n".join(lines)


def measured() -> Machine:
    """Latency, bandwidth and computing rate of the processes that this was started in."""
    import flambeau as torch
    from flambeau import distributed
    distributed.init_process_group("gloo")
    ranks = distributed.get_world_size()

    def best(function, rounds: int) -> float:
        found = math.inf
        for _ in range(5):
            distributed.barrier()
            start = time.perf_counter()
            for _ in range(rounds):
                function()
            found = min(found, (time.perf_counter() - start) / rounds)
        return found

    small, large, a = torch.ones(16), torch.ones(4 << 20), torch.ones(512, 512)
    steps = 2 * (ranks - 1) or 1
    latency = best(lambda: distributed.all_reduce(small), 200) / steps
    seconds = best(lambda: distributed.all_reduce(large), 3)
    bandwidth = steps * (large.nbytes / ranks) / max(seconds - steps * latency, 1e-9)
    return Machine(latency, bandwidth, 2 * 512**3 / best(lambda: a @ a, 5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for kind in (Machine, Model):
        for field in dataclasses.fields(kind):
            parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    parser.add_argument("--measure", action="store_true", help="latency, bandwidth and rate of the processes it is run in")
    given = vars(parser.parse_args())
    take = lambda kind: kind(**{f.name: given[f.name] for f in dataclasses.fields(kind)})
    machine = measured() if given["measure"] else take(Machine)
    if given["measure"]:
        from flambeau import distributed
        if distributed.get_rank():
            return
    print(f"{machine}\n{take(Model)}\n\n{table(machine, take(Model))}")


if __name__ == "__main__":
    main()
