"""Which way a call goes: by Python values, by shapes and kinds, by data; loops, recursion, patterns, short circuits."""

from __future__ import annotations

import functools
import itertools
import random

from soundness.world import Thing, around, each, final, fit, item, line, nn, put, task, torch, turns, vec


def data(compile, f, *inputs):
    """Calls with these inputs in turn, twice over."""
    f = compile(f)
    return (f(x) for x in inputs * 2)


UP, DOWN = vec(), -vec()


# ------------------------------------------------------------------------------------------------------------ Python values
def by_a_pattern(compile):
    def f(x, order):
        match order:
            case {"gain": gain, "bias": bias}:
                return x * gain + bias
            case {"gain": gain}:
                return x * gain
            case [first, *rest]:
                return x * first + len(rest)
            case Thing(gain=gain) if gain > 2:
                return x * gain
            case str() | bytes():
                return x * len(order)
            case None:
                return x * 1.0
            case _:
                return x * -1.0
    return turns(compile(f), ({"gain": 2.0}, {"gain": 2.0, "bias": 1}, [2.0, 1, 1], Thing(gain=3.0), Thing(gain=2.0), "ab",
                              None, 5, {"gain": 2.0}, b"abc", (3.0,), None))


def by_a_pattern_of_state(compile):
    box = Thing(order=("scale", 2.0))

    def f(x):
        match box.order:
            case ("scale", gain):
                return x * gain
            case ("shift", bias):
                return x + bias
            case _:
                return x
    return around(compile(f), put(box, order=("scale", 3.0)), put(box, order=("shift", 2.0)), put(box, order=()))


def by_a_short_circuit(compile):
    log, box = [], Thing(first=True)

    def said(name, answer):
        log.append(name)
        return answer

    def f(x):
        if said("a", box.first) and said("b", True) or said("c", False):  # noqa: RUF021
            return x * 2.0
        return x * 3.0
    yield from around(compile(f), put(box, first=False), put(box, first=True))
    yield log


def by_a_chain_of_comparisons(compile):
    box = Thing(low=0, n=1, high=2)
    f = compile(lambda x: x * 2.0 if box.low < box.n <= box.high else x * 3.0)
    return around(f, put(box, n=3), put(box, high=3), put(box, low=3))


def by_a_named_expression(compile):
    gains = {"a": 2.0}

    def f(x):
        if (gain := gains.get("a")) is not None:
            return x * gain
        return x * 3.0
    return around(compile(f), gains.clear, item(gains, "a", 2.0))


def by_while_and_a_counter(compile):
    box = Thing(stop=2)

    def f(x):
        n = 0
        while n < box.stop:
            x = x * 2.0
            n += 1
        else:
            x = x + 1
        return x
    return around(compile(f), put(box, stop=3), put(box, stop=0))


def by_break_and_continue(compile):
    box = Thing(skip={1}, stop=5)

    def f(x):
        for n in range(10):
            if n in box.skip:
                continue
            if n == box.stop:
                break
            x = x + n
        return x
    return around(compile(f), lambda: box.skip.add(2), put(box, stop=4))


def by_the_depth_of_a_recursion(compile):
    box = Thing(depth=2)

    def down(x, n):
        return x if n == 0 else down(x * 2.0, n - 1)
    return around(compile(lambda x: down(x, box.depth)), put(box, depth=3), put(box, depth=0))


def by_two_functions_in_turn(compile):
    box = Thing(n=3)

    def even(x, n):
        return x * 2.0 if n == 0 else odd(x, n - 1)

    def odd(x, n):
        return x * 3.0 if n == 0 else even(x, n - 1)
    return around(compile(lambda x: even(x, box.n)), put(box, n=4))


def by_a_walk_over_a_tree(compile):
    tree = {"op": "mul", "args": [{"op": "x"}, {"op": "const", "value": 2.0}]}

    def run(node, x):
        match node:
            case {"op": "x"}:
                return x
            case {"op": "const", "value": value}:
                return value
            case {"op": "mul", "args": args}:
                return functools.reduce(lambda a, b: a * b, [run(a, x) for a in args])
            case {"op": "add", "args": [a, b]}:
                return run(a, x) + run(b, x)
    return around(compile(lambda x: run(tree, x)), item(tree["args"][1], "value", 3.0), item(tree, "op", "add"))


def by_a_table_of_functions(compile):
    table, box = {"a": lambda x: x * 2.0, "b": lambda x: x * 3.0}, Thing(key="a")
    f = compile(lambda x: table[box.key](x))
    return around(f, put(box, key="b"), item(table, "b", lambda x: x * 2.0))


def by_a_dict_comprehension(compile):
    names, used = ["a", "b", "c"], {"a": 1.0, "b": 1.0, "c": 5.0}
    f = compile(lambda x: x * sum({n: used[n] for n in names if used[n] < 3}.values()))
    return around(f, item(used, "c", 1.0), lambda: names.pop(0))


def by_a_condition_deep_in_a_comprehension(compile):
    rows, box = [[1.0, 2.0], [3.0]], Thing(least=1.5)
    f = compile(lambda x: x * sum(v for row in rows if len(row) > 0 for v in row if v > box.least))
    return around(f, put(box, least=2.5), lambda: rows.append([4.0]))


def by_the_step(compile):
    box = Thing(step=0)

    def f(x):
        box.step += 1
        return x * 3.0 if box.step % 3 == 0 else x * 2.0
    yield from each(compile(f), vec(), calls=9)
    yield box.step


def by_the_kind_of_an_exception(compile):
    box = Thing(values=["2.0", "3.0"])

    def f(x):
        try:
            gain = float(box.values[1])
        except ValueError:
            return x * -1.0
        except (IndexError, TypeError) as error:
            return x * len(type(error).__name__)
        else:
            x = x + 1
        finally:
            box.seen = True
        return x * gain
    return around(compile(f), item(box.values, 1, "three"), item(box.values, 1, None), lambda: box.values.pop())


def by_assert(compile):
    box = Thing(ready=True)

    def f(x):
        assert box.ready, "not ready"
        return x * 2.0
    f = compile(f)
    for n in range(8):
        box.ready = n % 4 < 2
        try:
            yield f(vec())
        except AssertionError as error:
            yield str(error)


def by_chance(compile):
    def f(x):
        return x * 2.0 if random.random() < 0.5 else x * 3.0
    return each(compile(f), vec(), calls=12)


def by_the_name_of_a_class(compile):
    class Quiet:
        pass

    class Loud(Quiet):
        pass
    box = Thing(made=Quiet())
    f = compile(lambda x: x * 2.0 if type(box.made) is Quiet else x * 3.0)
    return around(f, put(box, made=Loud()), put(box, made=Quiet()))


def by_a_method_that_appears(compile):
    class Box:
        pass
    box = Box()
    f = compile(lambda x: box.scale(x) if callable(getattr(box, "scale", None)) else x * 2.0)
    return around(f, put(Box, scale=lambda self, x: x * 3.0), put(box, scale=None))


def by_deleting_names(compile):
    box = Thing(forget=False)

    def f(x):
        gain = 2.0
        if box.forget:
            del gain
        try:
            return x * gain
        except UnboundLocalError:
            return x * 3.0
    return around(compile(f), put(box, forget=True), put(box, forget=False))


# ---------------------------------------------------------------------------------------------------- kinds of the argument
def by_the_number_of_dimensions(compile):
    return data(compile, lambda x: x * 2.0 if x.dim() == 1 else x.sum(0) * 3.0, vec(), vec(), torch.ones(4, 3), vec())


def by_the_length(compile):
    return data(compile, lambda x: x * len(x) + x.numel() + x.size(-1), vec(), vec(4), vec(), vec(4), vec(5))


def by_the_dtype(compile):
    f = lambda x: x * 2.0 if x.dtype == torch.float32 else x.float() * 3.0
    return data(compile, f, vec(), vec(), vec().double(), vec().long())


def by_being_floating(compile):
    return data(compile, lambda x: x * 2.0 if x.is_floating_point() else x * 3, vec(), vec().long(), vec().half(), vec())


def by_requires_grad(compile):
    return data(compile, lambda x: x * 2.0 if x.requires_grad else x * 3.0, vec(), vec().requires_grad_(), vec(), vec())


def by_being_a_leaf(compile):
    leaf = vec().requires_grad_()
    return data(compile, lambda x: x * 2.0 if x.is_leaf else x * 3.0, leaf, leaf * 1, vec(), leaf * 2, leaf)


def by_having_a_history(compile):
    leaf = vec().requires_grad_()
    return data(compile, lambda x: x * 2.0 if x.grad_fn is None else x * 3.0, leaf, leaf * 1, vec(), leaf * 2)


def by_being_a_parameter(compile):
    f = compile(lambda x: x * 2.0 if isinstance(x, nn.Parameter) else x * 3.0)
    parameter, leaf = nn.Parameter(vec()), vec().requires_grad_()
    return (f(x) for x in (leaf, leaf, parameter, leaf, parameter, parameter))


def by_an_attribute_of_the_tensor(compile):
    marked = vec()
    marked.loud = True
    return data(compile, lambda x: x * 3.0 if hasattr(x, "loud") else x * 2.0, vec(), vec(), marked, vec(), marked)


def by_the_layout(compile):
    x = torch.arange(9.0).reshape(3, 3)
    f = lambda x: x * 2.0 if x.is_contiguous() else x * 3.0
    return data(compile, f, x, x, x.t(), x, x[:, :2], x.t())


def by_the_stride(compile):
    x = torch.arange(12.0).reshape(4, 3)
    return data(compile, lambda x: x * x.stride(0) + x.storage_offset(), x[0], x[1], x[:, 1], x[0], x[:, 0])


def by_the_identity_of_the_argument(compile):
    known = vec()
    return data(compile, lambda x: x * 2.0 if x is known else x * 3.0, vec(), known, vec(), known, known)


def by_membership_by_identity(compile):
    known = [vec(), vec()]
    f = lambda x: x * 2.0 if any(x is k for k in known) else x * 3.0
    return data(compile, f, vec(), known[0], known[1], vec(), known[1])


def by_an_empty_argument(compile):
    return data(compile, lambda x: x * 2.0 if len(x) else torch.ones(2), vec(), vec(0), vec(), vec(0), vec(1))


# -------------------------------------------------------------------------------------------------------------------- data
def by_an_item(compile):
    return data(compile, lambda x: x * 2.0 if x.sum().item() > 0 else x * 3.0, UP, UP, DOWN, UP, DOWN)


def by_the_truth_of_a_tensor(compile):
    return data(compile, lambda x: x * 2.0 if (x > 0).all() else x * 3.0, UP, UP, DOWN, UP, DOWN)


def by_a_comparison_of_tensors(compile):
    return data(compile, lambda x: x * 2.0 if x[0] < x[1] else x * 3.0, UP, DOWN, UP, DOWN)


def by_a_number_from_a_tensor(compile):
    return data(compile, lambda x: x * int(x[1]) + float(x[2]), UP, UP, DOWN, UP + 1)


def by_an_index_from_a_tensor(compile):
    gains = ["zero", 2.0, 3.0]
    return data(compile, lambda x: x * gains[int(x.abs().argmax())] if x[0] < 9 else x, UP, UP, UP.flip(0)[[1, 0, 2]], UP)


def by_rounds_until_it_is_small(compile):
    def f(x):
        n = 0
        while x.abs().max() > 1:
            x, n = x / 2, n + 1
        return x, n
    return data(compile, f, UP, UP * 10, UP, DOWN * 100)


def by_the_number_of_hits(compile):
    return data(compile, lambda x: x[x > 0] * 2.0, UP, UP, DOWN, torch.tensor([1.0, -1.0, 2.0]))


def by_positions_of_hits(compile):
    return data(compile, lambda x: (torch.nonzero(x > 1), x[torch.nonzero(x > 1).flatten()]), UP, UP, DOWN, UP * 2)


def by_the_values_there_are(compile):
    return data(compile, lambda x: torch.unique(x) * 2.0, UP, UP, torch.ones(3), torch.tensor([1.0, 2.0, 1.0]))


def by_equality_of_tensors(compile):
    known = vec()
    f = lambda x: x * 2.0 if torch.equal(x, known) else x * 3.0
    yield from data(compile, f, UP, DOWN, UP)
    known.neg_()
    yield from data(compile, f, UP, DOWN, UP)


def by_closeness(compile):
    return data(compile, lambda x: x * 2.0 if torch.allclose(x, UP, atol=0.1) else x * 3.0, UP, UP + 0.01, UP + 1, UP)


def by_a_list_from_a_tensor(compile):
    def f(x):
        total = 0.0
        for n, value in enumerate(x.tolist()):
            total += n * value if value > 0 else 1.0
        return x * total
    return data(compile, f, UP, UP, DOWN, torch.tensor([1.0, -1.0, 2.0]))


def by_a_look_before_and_after(compile):
    """Two looks at values, with work before, between and after them."""
    def f(x):
        y = x * 2.0
        y = y + 1 if y.sum() > 0 else y - 1
        z = y * 3.0
        return z + 1 if z[0] > 5 else z - 1
    return data(compile, f, UP, UP, DOWN, UP / 10, UP)


def by_a_loss_that_is_not_finite(compile):
    net, opt, x, y = line()

    @compile
    def step(x, y):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        if not torch.isfinite(loss):
            return loss, "skipped"
        loss.backward()
        opt.step()
        return loss, "done"
    for n in range(8):
        yield step(x, y * float("nan") if n in (3, 6) else y)
    yield final(net, opt)


def by_the_loss_of_the_last_step(compile):
    net, opt, x, y = task()
    box = Thing(last=float("inf"), gain=1.0)

    @compile
    def step(x, y):
        loss = fit(net, opt, x * box.gain, y)
        value = float(loss.detach())
        if value > box.last * 0.9:
            box.gain *= 0.5
        box.last = value
        return loss
    for _ in range(8):
        yield step(x, y), box.gain, box.last
    yield final(net, opt)


def by_a_sampled_token(compile):
    torch.manual_seed(2)
    table = torch.softmax(torch.arange(16.0).reshape(4, 4) % 5, 1)

    def talk(token):
        said = [token]
        while len(said) < 6 and said[-1] != 3:
            said.append(int(torch.multinomial(table[said[-1]], 1)))
        return said
    talk = compile(talk)
    for token in (0, 1, 0, 2, 0, 1):
        yield talk(token)


def by_newtons_method(compile):
    def root(x):
        for steps in itertools.count():
            y = x * x - 2.0
            if y.abs().max().item() < 1e-4:
                return x, steps
            x = x - y / (2 * x)
    return data(compile, root, torch.ones(3), vec(), vec() * 100, vec())
