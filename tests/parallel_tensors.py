"""Checks of distributed tensors: every rule gives the value and the gradients of whole tensors, in all placements."""

import itertools
import random

import flambeau as torch
from flambeau import nn
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, ones, randn
from flambeau.distributed.tensor.parallel import loss_parallel
from flambeau.nn import functional as F

D = torch.float64
FEW = 5  # combinations of placements per operation
OPERATIONS = [
    (lambda a, b: a + b, [(4, 6), (4, 6)]), (lambda a, b: a * b + 2, [(4, 6), (6,)]),
    (lambda a, b: a / (b * b + 1), [(4, 6), (4, 1)]),
    (lambda a: F.gelu(a), [(5, 3)]), (lambda a: a ** 2 - 1 / (2 + a * a), [(5,)]), (lambda a, b: a @ b, [(4, 6), (6, 8)]),
    (lambda a, b: a @ b, [(3, 4, 6), (3, 6, 2)]), (lambda a, b: a @ b, [(3, 4, 6), (6, 2)]),
    (lambda x, w, b: F.linear(x, w, b), [(2, 4, 6), (8, 6), (8,)]), (lambda x, w: F.linear(x, w), [(5, 6), (8, 6)]),
    (lambda x, w, b: F.layer_norm(x, (6,), w, b), [(2, 4, 6), (6,), (6,)]), (lambda x: F.softmax(x, -1), [(4, 6)]),
    (lambda x: x.log_softmax(0), [(4, 6)]), (lambda x: x.sum(1), [(4, 6)]),
    (lambda x: x.mean((0, 2), keepdim=True), [(4, 6, 2)]),
    (lambda x: x.amax(0), [(4, 6)]), (lambda x: x.view(4, 2, 3) * 2, [(4, 6)]), (lambda x: x.reshape(24), [(4, 6)]),
    (lambda x: x.view(2, 2, 6), [(4, 6)]), (lambda x: x.T @ x, [(4, 6)]), (lambda x: x.permute(2, 0, 1), [(4, 6, 2)]),
    (lambda x: x.unsqueeze(1).expand(4, 3, 6).squeeze(0), [(4, 6)]), (lambda x: x.chunk(2, 1)[0] - x.split(3, 1)[1], [(4, 6)]),
    (lambda x: x[1:, None, 2] * x[0, 1], [(4, 6)]), (lambda a, b: torch.cat([a, b], 1), [(4, 6), (4, 2)]),
    (lambda a, b: torch.stack([a, b], 1), [(4, 6), (4, 6)]), (lambda x: x.norm() + torch.linalg.vector_norm(x, 3), [(4, 6)]),
    (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 4, 5, 3)] * 3),
    (lambda a, b: F.mse_loss(a, b), [(4, 6), (4, 6)]), (lambda x: x.var(0), [(4, 6)]),  # (no rule of its own)
]


def _everywhere(mesh):
    return [Replicate()] * mesh.ndim


def _compare(fn, given, placements, mesh):
    plain = [x.clone().requires_grad_() for x in given]
    wanted = fn(*plain)
    weight = torch.randn(wanted.shape, dtype=D, generator=torch.Generator().manual_seed(3))
    (wanted * weight).sum().backward()
    spread = [distribute_tensor(x, mesh, p).requires_grad_() for x, p in zip(given, placements)]
    got = fn(*spread)
    assert isinstance(got, DTensor) and got.shape == wanted.shape
    assert (got.full_tensor() - wanted).abs().max().item() < 1e-10
    (got * distribute_tensor(weight, mesh, _everywhere(mesh))).sum().backward()
    for x, y in zip(spread, plain):
        assert x.grad.placements == x.placements
        assert (x.grad.full_tensor() - y.grad).abs().max().item() < 1e-10


def operations_on_pieces(rank, world):
    chosen = random.Random(world)
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world,)) if world < 4 else init_device_mesh("cpu", (2, 2))
    for number, (fn, shapes) in enumerate(OPERATIONS):
        given = [torch.randn(s, dtype=D) for s in shapes]
        ways = [list(itertools.product([Replicate(), *map(Shard, range(len(s)))], repeat=mesh.ndim)) for s in shapes]
        combinations = list(itertools.product(*ways))
        for placements in chosen.sample(combinations, min(len(combinations), FEW if world < 4 else 2)):
            try:
                _compare(fn, given, placements, mesh)
            except Exception as error:
                error.add_note(f"operation {number} in {placements}")
                raise


operations_on_pieces.worlds = (2, 4)


def moves(rank, world):
    mesh = init_device_mesh("cpu", (world,)) if world < 4 else init_device_mesh("cpu", (2, 2))
    x = torch.arange(35, dtype=D).reshape(5, 7)
    kinds = [Replicate(), Shard(0), Shard(1)]
    ways = list(itertools.product(itertools.product(kinds, repeat=mesh.ndim), repeat=2))
    for a, b in random.Random(world).sample(ways, min(len(ways), 40)):
        moved = distribute_tensor(x, mesh, a).redistribute(placements=b)
        assert moved.placements == tuple(b) and torch.equal(moved.full_tensor(), x), f"{a} to {b}"
    summands = DTensor.from_local(x * (rank + 1), mesh, [Partial()] * mesh.ndim)
    total = sum(range(1, world + 1))
    assert torch.equal(summands.full_tensor(), x * total)
    assert torch.equal(summands.redistribute(placements=[Shard(1)] + [Replicate()] * (mesh.ndim - 1)).full_tensor(), x * total)
    for made in (torch.ones_like(summands), torch.full_like(summands, 1.0), torch.zeros_like(summands) + 1):
        assert torch.equal(made.full_tensor(), torch.ones_like(x))  # once, not on every process
    halves = DTensor.from_local(x / 2 if rank < 2 else x * 0, mesh, [Partial()] * mesh.ndim)
    assert torch.equal(halves.to(torch.int64).full_tensor(), x.long())  # added before fractions are dropped


moves.worlds = (2, 4)


def lookups(rank, world):
    mesh = init_device_mesh("cpu", (world,))
    places, table = torch.tensor([[0, 3, 8], [1, 1, 5]]), torch.randn(9, 4, dtype=D, generator=torch.Generator().manual_seed(1))
    plain = table.clone().requires_grad_()
    wanted = F.embedding(places, plain)
    wanted.square().sum().backward()
    for placement in (Replicate(), Shard(0), Shard(1)):
        spread = distribute_tensor(table, mesh, [placement]).requires_grad_()
        got = F.embedding(distribute_tensor(places, mesh, [Replicate()]), spread)
        (got * got).sum().backward()
        assert (got.full_tensor() - wanted).abs().max().item() < 1e-12
        assert (spread.grad.full_tensor() - plain.grad).abs().max().item() < 1e-12


def losses_of_classes_in_pieces(rank, world):
    """Inside loss_parallel the cross entropy of pieces is that of whole logits, and so are its gradients."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world,))
    cases = [((6, 8), {}), ((6, 5), {"reduction": "sum"}), ((6, 3), {"reduction": "none", "ignore_index": 1}),
             ((6, 7), {"weight": torch.rand(7, dtype=D), "ignore_index": 2}), ((2, 6, 3), {"weight": torch.rand(6, dtype=D)}),
             ((9,), {}), ((4, 6), {"label_smoothing": 0.1})]
    for shape, options in cases:
        classes = shape[min(1, len(shape) - 1)]
        logits = torch.randn(shape, dtype=D) * 30
        target = torch.randint(classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
        for labels in (target, distribute_tensor(target, mesh, [Replicate()])):
            plain, spread = logits.clone().requires_grad_(), distribute_tensor(logits, mesh, [Shard(min(1, len(shape) - 1))])
            spread.requires_grad_()
            with loss_parallel():
                got = F.cross_entropy(spread, labels, **options)
            wanted = F.cross_entropy(plain, target, **options)
            assert isinstance(got, DTensor) and got.placements == (Replicate(),) and got.shape == wanted.shape
            assert (got.full_tensor() - wanted).abs().max().item() < 1e-10, (shape, options)
            got.sum().backward()
            wanted.sum().backward()
            assert (spread.grad.full_tensor() - plain.grad).abs().max().item() < 1e-10, (shape, options)
    spread = distribute_tensor(torch.zeros(2, 4), mesh, [Shard(1)])
    with loss_parallel():
        for wrong, said in ((lambda: F.cross_entropy(spread, torch.tensor([0, 4])), "Target 4 is out of bounds"),
                            (lambda: F.cross_entropy(spread, torch.tensor([0, 1]), reduction="most"), "not a valid value")):
            try:
                wrong()
            except (IndexError, ValueError) as error:
                assert said in str(error), error
            else:
                raise AssertionError("nothing was raised")
    try:
        F.cross_entropy(spread, torch.tensor([0, 1]))  # outside of it plain tensors do not go with distributed ones
    except RuntimeError as error:
        assert "mixed torch.Tensor and DTensor" in str(error), error
    else:
        raise AssertionError("nothing was raised")


losses_of_classes_in_pieces.worlds = (2, 4)


def random_numbers_do_not_depend_on_placements(rank, world):
    mesh = init_device_mesh("cpu", (world,))
    drawn = []
    for placement in (Replicate(), Shard(0), Shard(1)):
        torch.manual_seed(5)
        weight = nn.Parameter(ones(6, 4, device_mesh=mesh, placements=[placement]))
        nn.init.kaiming_uniform_(weight)
        drawn.append([weight.full_tensor(), F.dropout(weight, 0.5).full_tensor(),
                      randn(6, 4, device_mesh=mesh, placements=[placement]).full_tensor()])
    for others in drawn[1:]:
        assert all(torch.equal(a, b) for a, b in zip(drawn[0], others))


def plain_and_distributed_do_not_mix(rank, world):
    mesh = init_device_mesh("cpu", (world,))
    spread = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
    for wrong in (lambda: spread + torch.ones(4), lambda: torch.ones(4).add_(spread), lambda: spread.numpy()):
        try:
            wrong()
        except RuntimeError as error:
            assert "DTensor" in str(error), error
        else:
            raise AssertionError("nothing was raised")
    assert (spread + torch.tensor(1.0)).full_tensor().tolist() == [2.0] * 4
    assert float(spread.sum()) == 4.0 and bool((spread > 0).all()) and len(spread) == 4


def optimizers(rank, world):
    """Every rule updates pieces as it updates whole parameters, those that look at whole matrices too."""
    rules = [(name, {}) for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam",
                                     "Rprop", "ASGD", "Adafactor", "Muon")]
    rules += [("SGD", {"momentum": 0.9, "nesterov": True}), ("Adam", {"foreach": False, "amsgrad": True})]
    mesh = init_device_mesh("cpu", (world,))
    start = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    for name, options in rules:
        found = []
        for placement in (None, Shard(0), Replicate()):
            p = start if placement is None else distribute_tensor(start, mesh, [placement])
            p = nn.Parameter(p.clone())
            rule = getattr(torch.optim, name)([p], lr=0.1, **options)
            for _ in range(3):
                rule.zero_grad()
                (p * p * 0.5 + p.sin()).sum().backward()
                rule.step()
            found.append(p.full_tensor() if placement is not None else p)
        for other in found[1:]:
            error = (other - found[0]).abs().max().item()
            assert error < 1e-6, f"{name}: {error}"


optimizers.worlds = (2,)
CHECKS = [optimizers, operations_on_pieces, moves, lookups, random_numbers_do_not_depend_on_placements,
          plain_and_distributed_do_not_mix, losses_of_classes_in_pieces]
