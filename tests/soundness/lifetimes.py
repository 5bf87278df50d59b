"""What comes back and how long it lives: results that alias, results kept, identity, graphs walked later, things made anew."""

from __future__ import annotations

import copy
import gc
import io
import itertools
import types
import weakref

from soundness.world import Thing, around, final, fit, line, nn, optim, put, task, torch, vec


# ------------------------------------------------------------------------------------------------- results that are something
def result_is_the_argument(compile):
    f = compile(lambda x: x)
    for n in range(5):
        x = vec() * n
        yield f(x) is x


def result_is_the_argument_or_not(compile):
    box = Thing(gain=None)
    f = compile(lambda x: x if box.gain is None else x * box.gain)
    x = vec()
    for n in range(9):
        box.gain = (None, 2.0, None)[n // 3]
        y = f(x)
        yield y is x, y


def result_is_a_captured_tensor(compile):
    box = Thing(weight=vec())
    f = compile(lambda x: (box.weight, x * 2.0))
    for n in range(8):
        if n == 4:
            box.weight = vec()
        made, _ = f(vec())
        made.add_(1)
        yield made is box.weight, box.weight


def result_is_a_view_of_the_argument(compile):
    f = compile(lambda x: (x[1:], x.view(3, 1), x * 2.0))
    for n in range(6):
        x = vec() * n
        part, column, _ = f(x)
        part.add_(10)
        yield x, column


def result_knows_its_base(compile):
    weight = vec()
    f = compile(lambda x: (x[1:], weight.view(3, 1), x * 2.0))
    for n in range(6):
        x = vec() * n
        made = f(x)
        yield made[0]._base is x, made[1]._base is weight, [m._is_view() for m in made]


def result_is_a_view_of_a_captured_tensor(compile):
    box = Thing(weight=vec())
    f = compile(lambda x: box.weight[:2])
    for n in range(6):
        if n == 3:
            box.weight = vec()
        f(vec()).add_(1)
        yield box.weight


def result_is_a_view_of_a_parameter(compile):
    net = nn.Linear(3, 2)
    f = compile(lambda: net.weight.detach()[0])
    for n in range(6):
        if n == 3:
            net.weight = nn.Parameter(torch.ones(2, 3))
        f().mul_(2.0)
        yield net.weight


def result_is_transposed(compile):
    f = compile(lambda x: x.t() * 2.0)
    for n in range(5):
        y = f(torch.arange(6.0).reshape(2, 3) * n)
        yield y, y.stride(), y.is_contiguous()


def result_is_one_object_twice(compile):
    def f(x):
        y = x * 2.0
        return {"a": y, "b": [y, y.view(3)]}
    f = compile(f)
    for n in range(6):
        made = f(vec() * n)
        made["a"].add_(1)
        yield made["b"], made["a"] is made["b"][0]


def result_is_a_list_outside(compile):
    box = Thing(parts=[1.0])
    f = compile(lambda x: (box.parts, x * 2.0))
    for n in range(6):
        if n == 3:
            box.parts = [1.0]
        parts, _ = f(vec())
        parts.append(n)
        yield parts is box.parts, list(box.parts)


def result_is_a_list_of_its_own(compile):
    f = compile(lambda x: [x * 2.0, [], {}])
    made = [f(vec() * n) for n in range(5)]
    made[0][1].append(1)
    made[1][2]["a"] = 1
    yield made


def result_holds_the_argument_list(compile):
    f = compile(lambda x, parts: (parts, [parts], x * 2.0))
    for _ in range(5):
        parts = [1.0]
        one, two, _ = f(vec(), parts)
        yield one is parts, two[0] is parts


def result_is_an_object_with_a_method(compile):
    class Output(Thing):
        def total(self):
            return self.x.sum() * self.gain
    box = Thing(gain=2.0)
    f = compile(lambda x: Output(x=x * 2.0, gain=box.gain))
    made = []
    for n in range(6):
        box.gain = 2.0 if n < 3 else 3.0
        made.append(f(vec() * n))
    made[0].gain = 9.0
    yield [m.total() for m in made]


def result_is_a_closure(compile):
    def f(x):
        y, calls = x * 2.0, 0

        def later(z):
            nonlocal calls
            calls += 1
            return y * z * calls
        return later
    f = compile(f)
    made = [f(vec() * n) for n in range(5)]
    yield [[g(vec()) for g in made] for _ in range(2)]


def result_is_an_iterator(compile):
    f = compile(lambda x: iter([x * 2.0, x * 3.0]))
    made = [f(vec() * n) for n in range(4)]
    yield [next(m) for m in made], [list(m) for m in made]


def result_is_a_lazy_generator(compile):
    """It computes when it is walked, with what is there by then."""
    box = Thing(gain=2.0)
    f = compile(lambda x: (x * box.gain + n for n in range(2)))
    made = [f(vec() * n) for n in range(4)]
    box.gain = 3.0
    yield [list(m) for m in made]


def result_is_a_map(compile):
    f = compile(lambda x: map(lambda gain: x * gain, [2.0, 3.0]))  # noqa: C417
    yield [list(f(vec() * n)) for n in range(4)]


def result_is_a_module(compile):
    f = compile(lambda: nn.Linear(3, 1))
    made = [f() for _ in range(5)]
    yield [m(vec()) for m in made], len({id(m) for m in made})


def result_is_a_parameter_made_anew(compile):
    f = compile(lambda x: nn.Parameter(x * 2.0))
    made = [f(vec() * n) for n in range(5)]
    yield [(type(m).__name__, m.is_leaf, m.requires_grad) for m in made], made


def result_is_a_number(compile):
    count = itertools.count()
    f = compile(lambda x: next(count))
    return (f(vec()) for _ in range(5))


def results_are_numbers_of_tensors(compile):
    f = compile(lambda x: (x.sum().item(), x.tolist(), float(x.max()), bool((x > 2).any()), tuple(x.shape)))
    return (f(vec() * n) for n in range(6))


def result_is_a_namespace_kept(compile):
    box = Thing(last=None)

    def f(x):
        box.last = types.SimpleNamespace(x=x * 2.0, before=box.last)
        return box.last
    f = compile(f)
    made = [f(vec() * n) for n in range(5)]
    yield box.last is made[-1], [m.x for m in made], [m.before is made[n - 1] for n, m in enumerate(made) if n]


# ---------------------------------------------------------------------------------------------------------- results are kept
def results_are_kept(compile):
    f = compile(lambda x: (x * 2.0, (x + 1)[1:]))
    yield [f(vec() * n) for n in range(8)]


def results_are_written_to(compile):
    f = compile(lambda x: x * 2.0)
    x = vec()
    for _ in range(6):
        f(x).zero_()
        yield f(x)


def results_live_as_long_as_they_are_held(compile):
    f = compile(lambda x: x * 2.0)
    alive = []
    for _ in range(6):
        y = f(vec())
        alive.append(weakref.ref(y))
        del y
        yield sum(r() is not None for r in alive)


def arguments_are_let_go(compile):
    """A call keeps nothing of what it was given."""
    f = compile(lambda x, box: x * box.gain)
    for n in range(5):
        box, x = Thing(gain=2.0), vec() * n
        refs = weakref.ref(box), weakref.ref(x)
        y = f(x, box)
        del box, x
        gc.collect()
        yield y, [r() is None for r in refs]


def results_of_a_function_that_is_gone(compile):
    kept = []
    for gain in (2.0, 3.0):
        f = compile(lambda x, gain=gain: x * gain)
        kept += [f(vec() * n) for n in range(4)]
        del f
        gc.collect()
    yield kept


def result_goes_in_again(compile):
    f = compile(lambda x, h: (h * 2.0 + x, h + 1))
    h = torch.zeros(3)
    kept = []
    for _ in range(7):
        y, h = f(vec(), h)
        kept.append((y, h))
    yield kept


def result_goes_in_as_its_own_view(compile):
    f = compile(lambda x: x * 2.0)
    x = torch.ones(4)
    for _ in range(6):
        x = f(x)[:3].repeat(2)[:4]
        yield x


def two_calls_side_by_side(compile):
    f = compile(lambda x: x * 2.0)
    for n in range(6):
        a, b = f(vec() * n), f(vec() * (n + 1))
        yield a, b, f(a) + f(b)


# ------------------------------------------------------------------------------------------------------ graphs walked later
def weights():
    return torch.ones(3, requires_grad=True)


def graph_of_one_call(compile):
    weight = weights()
    f = compile(lambda x: (weight * x).sum())
    for n in range(6):
        f(vec() * n).backward()
        yield weight.grad


def graph_of_two_calls(compile):
    weight = weights()
    f = compile(lambda x: weight * x)
    for n in range(1, 7):
        weight.grad = None
        (f(vec() * n) * f(vec())).sum().backward()
        yield weight.grad


def graph_walked_in_the_wrong_order(compile):
    weight = weights()
    f = compile(lambda x: (weight * x).sum())
    for n in range(1, 6):
        weight.grad = None
        first, second = f(vec()), f(vec() * n)
        second.backward()
        first.backward()
        yield weight.grad


def graph_walked_by_one_result_only(compile):
    a, b = weights(), weights()
    f = compile(lambda x: ((a * x).sum(), (b * x).sum()))
    for n in range(6):
        a.grad = b.grad = None
        f(vec())[n % 2].backward()
        yield a.grad, b.grad


def graph_never_walked(compile):
    weight = weights()
    f = compile(lambda x: (weight * x).sum())
    for n in range(6):
        y = f(vec())
        if n % 3 == 2:
            y.backward()
        yield weight.grad, y.requires_grad


def graph_after_the_weight_changed(compile):
    weight = weights()
    f = compile(lambda x: (weight * weight * x).sum())
    for n in range(6):
        y = f(vec())
        weight.grad = None
        if n % 3 == 2:
            with torch.no_grad():
                weight.add_(1)
        try:
            y.backward()
            yield weight.grad
        except RuntimeError as error:
            yield "modified by an inplace operation" in str(error)


def graph_through_the_argument(compile):
    f = compile(lambda x: x * x * 2.0)
    for n in range(6):
        x = (vec() * n).requires_grad_()
        y = f(x)
        z = f(y)
        z.sum().backward()
        yield x.grad


def graph_of_an_argument_that_is_not_a_leaf(compile):
    weight = weights()
    f = compile(lambda x: x * 2.0)
    for n in range(6):
        weight.grad = None
        f((weight * n) if n % 2 else (weight * n).detach()).sum().requires_grad_(True).backward()
        yield weight.grad


def graph_retained(compile):
    weight = weights()
    f = compile(lambda x: (weight * x).sum())
    for n in range(5):
        weight.grad = None
        y = f(vec() * n)
        for _ in range(n + 1):
            y.backward(retain_graph=True)
        yield weight.grad


def graph_of_a_gradient(compile):
    weight = weights()
    f = compile(lambda x: (weight ** 3 * x).sum())
    for n in range(5):
        g, = torch.autograd.grad(f(vec() * n), weight, create_graph=True)
        weight.grad = None
        g.sum().backward()
        yield g, weight.grad


def graph_with_a_hook_on_the_result(compile):
    weight, seen = weights(), []
    f = compile(lambda x: weight * x)
    for n in range(5):
        y = f(vec() * n)
        y.register_hook(lambda grad, n=n: seen.append(n) or grad * 2.0)
        weight.grad = None
        y.sum().backward()
        yield weight.grad, list(seen)


def graph_with_a_retained_gradient(compile):
    weight = weights()
    f = compile(lambda x: weight * x)
    for n in range(5):
        y = f(vec() * n)
        y.retain_grad()
        (y * y).sum().backward()
        yield y.grad, weight.grad


def graph_kept_alive_by_the_result(compile):
    weight = weights()
    f = compile(lambda x: (weight * x).sum())
    losses = [f(vec() * n) for n in range(5)]
    del f
    gc.collect()
    sum(losses).backward()
    yield weight.grad


def graph_truncated(compile):
    """A hidden state that is detached every third step."""
    weight = weights()
    f = compile(lambda h, x: h * weight + x)
    h = torch.zeros(3)
    for n in range(9):
        h = f(h, vec())
        if n % 3 == 2:
            h.sum().backward()
            h = h.detach()
        yield weight.grad


# ---------------------------------------------------------------------------------------------------------------- made anew
def objects_at_the_same_address(compile):
    """A new object may have the address of one that is gone."""
    box = Thing(inner=Thing(gain=2.0))

    def change(gain):
        def made():
            box.inner = None
            box.inner = Thing(gain=gain)
        return made
    return around(compile(lambda x: x * box.inner.gain), change(3.0), change(2.0), change(5.0))


def tensors_at_the_same_address(compile):
    box = Thing(weight=torch.full((3,), 2.0))

    def change(gain):
        def made():
            box.weight = None
            box.weight = torch.full((3,), gain)
        return made
    return around(compile(lambda x: x * box.weight), change(3.0), change(5.0))


def model_made_anew(compile):
    net, opt, x, y = line()
    step = compile(lambda: fit(net, opt, x, y))
    for n in range(8):
        if n in (3, 6):
            net, opt, _, _ = line()
        yield step()
    yield final(net, opt)


def model_loaded(compile):
    net, opt, x, y = line(lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9))
    step = compile(lambda: fit(net, opt, x, y))
    file = io.BytesIO()
    for n in range(8):
        if n == 2:
            torch.save((net.state_dict(), opt.state_dict()), file)
        if n == 5:
            file.seek(0)
            saved = torch.load(file)
            net.load_state_dict(saved[0]), opt.load_state_dict(saved[1])
        yield step()
    yield final(net, opt)


def model_copied_deep(compile):
    net, opt, x, y = line()
    step = compile(lambda net, opt: fit(net, opt, x, y))
    for _ in range(3):
        yield step(net, opt)
    twin = copy.deepcopy(net)
    other = optim.SGD(twin.parameters(), lr=0.5)
    for _ in range(3):
        yield step(twin, other), step(net, opt)
    yield final(net), final(twin)


def many_models_in_turn(compile):
    tasks = [line() for _ in range(4)]
    step = compile(fit)
    for _ in range(3):
        yield [step(*t) for t in tasks]
    yield [final(t[0]) for t in tasks]


def best_weights_kept(compile):
    net, opt, x, y = task(lambda ps: optim.SGD(ps, lr=0.3))
    box = Thing(best=float("inf"), kept=None)

    @compile
    def step():
        loss = fit(net, opt, x, y)
        value = loss.item()
        if value < box.best:
            box.best, box.kept = value, {k: v.clone() for k, v in net.state_dict().items()}
        return loss
    for n in range(8):
        if n == 5:
            net.load_state_dict(box.kept)
        yield step(), box.best
    yield box.kept, final(net)


def name_put_back(compile):
    a, b = Thing(gain=2.0), Thing(gain=3.0)
    box = Thing(inner=a)
    f = compile(lambda x: x * box.inner.gain)
    yield from around(f, put(box, inner=b), put(a, gain=5.0), put(box, inner=a), put(box, inner=b))
