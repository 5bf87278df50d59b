"""Errors that come from values: they are raised by the operation, before anything else happens, and can be caught there."""

from __future__ import annotations

from soundness.exceptions import tried
from soundness.world import F, Thing, nn, torch, vec

GOOD, BAD = torch.tensor([0, 1]), torch.tensor([0, 9])


def failing(compile, operation, good, bad, write=True):
    """Operations that fail for some values: what was done before stays, nothing after it happens."""
    log, buffer = [], torch.zeros(3)

    def f(value):
        log.append("before")
        if write:
            buffer.add_(1)
        y = operation(value)
        log.append("after")
        buffer.add_(10)
        return y
    f = compile(f)
    for n in range(9):
        y = tried(f, bad if n in (3, 4, 7) else good)
        yield y[0] if isinstance(y, list) else y, list(log), buffer


def caught(compile, operation, good, bad):
    """The function itself catches what the operation raises."""
    def f(value):
        try:
            y = operation(value)
        except (IndexError, RuntimeError, ZeroDivisionError, ValueError) as error:
            return torch.zeros(1), type(error).__name__
        return y, "fine"
    f = compile(f)
    return (f(bad if n in (3, 4, 7) else good) for n in range(9))


OPERATIONS = {  # an operation, a value that it takes, one that it does not
    "index": (lambda i: vec()[i], GOOD, BAD),
    "gather": (lambda i: vec().gather(0, i), GOOD, BAD),
    "select": (lambda i: vec().index_select(0, i), GOOD, BAD),
    "embedding": (lambda i: F.embedding(i, torch.ones(3, 2)), GOOD, BAD),
    "one_hot": (lambda i: F.one_hot(i, 3), GOOD, BAD),
    "cross_entropy": (lambda i: F.cross_entropy(torch.ones(2, 3), i), GOOD, BAD),
    "scatter": (lambda i: torch.zeros(3).scatter(0, i, 1.0), GOOD, BAD),
    "inverse": (lambda m: torch.linalg.inv(m), torch.eye(2), torch.zeros(2, 2)),
    "cholesky": (lambda m: torch.linalg.cholesky(m), torch.eye(2), -torch.eye(2)),
    "multinomial": (lambda p: torch.multinomial(p, 1), torch.tensor([0.0, 1.0]), torch.tensor([-1.0, 1.0])),
    "bernoulli": (lambda p: torch.bernoulli(p), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0])),
    "solve": (lambda m: torch.linalg.solve(m, torch.ones(2)), torch.eye(2), torch.zeros(2, 2)),
    "binary_cross_entropy": (lambda p: F.binary_cross_entropy(p, torch.ones(2)), torch.tensor([0.5, 1.0]),
                             torch.tensor([0.5, 2.0])),
    "repeat": (lambda n: vec().repeat_interleave(n), torch.tensor([1, 2, 0]), torch.tensor([1, -2, 0])),
    "put": (lambda i: torch.zeros(3).index_add(0, i, torch.ones(2)), GOOD, BAD),
    "divided": (lambda i: torch.tensor([4, 6]) // i, torch.tensor([1, 2]), torch.tensor([1, 0])),
    "scalar": (lambda v: torch.ones(2) * v.item(), torch.tensor(2.0), torch.ones(2)),
}


def alone(compile, operation, good, bad):
    """Nothing but the operation."""
    f = compile(lambda value: operation(value) * 2)
    for n in range(9):
        y = tried(f, bad if n in (3, 4, 7) else good)
        yield y[0] if isinstance(y, list) else y


def program(kind, name, **options):
    def run(compile):
        return kind(compile, *OPERATIONS[name], **options)
    return run


for _name in OPERATIONS:
    globals()[f"{_name}_alone"] = program(alone, _name)
    globals()[f"{_name}_on_the_way"] = program(failing, _name)
    globals()[f"{_name}_on_the_way_without_a_write"] = program(failing, _name, write=False)
    globals()[f"{_name}_caught"] = program(caught, _name)


def index_out_of_range_in_a_step(compile):
    """Parameters and gradients are as the exception left them."""
    table, log = nn.Embedding(4, 2), []
    opt = torch.optim.SGD(table.parameters(), lr=0.1)

    @compile
    def step(i):
        opt.zero_grad()
        log.append("zeroed")
        loss = table(i).sum()
        log.append("computed")
        loss.backward()
        opt.step()
        return loss
    for n in range(8):
        y = tried(step, BAD if n in (3, 6) else GOOD)
        yield y[0] if isinstance(y, list) else y, table.weight, table.weight.grad, list(log)


def index_out_of_range_after_random_numbers(compile):
    def f(i):
        a = torch.rand(3)
        y = vec()[i]
        return y.sum() + a + torch.rand(3)
    f = compile(f)
    for n in range(8):
        y = tried(f, BAD if n in (3, 6) else GOOD)
        yield y[0] if isinstance(y, list) else y, torch.rand(1)


def error_of_the_second_of_two_calls(compile):
    box = Thing(good=0)

    def one(i):
        y = vec()[i]
        box.good += 1
        return y

    def both(i):
        first = one(GOOD)
        try:
            return first + one(i)
        finally:
            box.good += 100
    both = compile(both)
    for n in range(8):
        y = tried(both, BAD if n in (3, 6) else GOOD)
        yield y[0] if isinstance(y, list) else y, box.good


def error_that_prints_first(compile):
    def f(i):
        print("indexing")
        y = vec()[i]
        print("indexed")
        return y * 2.0
    f = compile(f)
    for n in range(8):
        y = tried(f, BAD if n in (3, 6) else GOOD)
        yield y[0] if isinstance(y, list) else y
