"""Hooks of all kinds: that count, keep, change what passes, come and go, remove themselves."""

from __future__ import annotations

from flambeau.utils.checkpoint import checkpoint
from soundness.world import Thing, around, each, final, fit, line, nn, optim, put, task, torch, vec


def trained(compile, prepare, *changes):
    """Training with hooks: prepare(net, opt) adds them and gives what is to be seen."""
    net, opt, x, y = line()
    show = prepare(net, opt)
    yield from around(compile(lambda: fit(net, opt, x, y)), *[lambda c=c: c(net, opt) for c in changes], args=())
    yield final(net, opt), show


def called(compile, prepare, *changes):
    """Forward calls with hooks."""
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    show = prepare(net)
    yield from around(compile(lambda x: net(x)), *[lambda c=c: c(net) for c in changes])
    yield show


# -------------------------------------------------------------------------------------------------------- forward of layers
def forward_hook_counts(compile):
    seen = []
    return called(compile, lambda net: net[1].register_forward_hook(lambda *a: seen.append(len(seen))) and seen)


def forward_hook_keeps_the_result(compile):
    kept = []
    return called(compile, lambda net: net[0].register_forward_hook(lambda m, args, out: kept.append(out.detach())) and kept)


def forward_hook_changes_the_result(compile):
    box = Thing(gain=2.0)
    return called(compile, lambda net: net[0].register_forward_hook(lambda m, args, out: out * box.gain) and None,
                  lambda net: put(box, gain=3.0)())


def forward_hook_added_later(compile):
    seen = []
    return called(compile, lambda net: seen, lambda net: net.register_forward_hook(lambda m, args, out: seen.append(1)),
                  lambda net: net.register_forward_hook(lambda m, args, out: out * 2.0))


def forward_hook_removed(compile):
    box, seen = Thing(), []

    def prepare(net):
        box.handle = net.register_forward_hook(lambda m, args, out: seen.append(1) or out * 2.0)
        return seen
    return called(compile, prepare, lambda net: box.handle.remove())


def forward_hook_removes_itself(compile):
    seen = []

    def add(net):
        def hook(m, args, out):
            handle.remove()
            seen.append(1)
            return out * 2.0
        handle = net.register_forward_hook(hook)
        return seen
    return called(compile, add, add)


def forward_hooks_in_their_order(compile):
    box, seen = Thing(), []

    def prepare(net):
        net.register_forward_hook(lambda m, args, out: seen.append("a") or out * 2.0)
        return seen
    return called(compile, prepare,
                  lambda net: net.register_forward_hook(lambda m, args, out: seen.append("b") or out + 1),
                  lambda net: put(box, h=net.register_forward_hook(lambda m, args, out: seen.append("c"), prepend=True))())


def pre_hook_changes_the_argument(compile):
    box = Thing(gain=2.0)
    return called(compile, lambda net: net.register_forward_pre_hook(lambda m, args: (args[0] * box.gain,)) and None,
                  lambda net: put(box, gain=3.0)())


def pre_hook_with_keywords(compile):
    class Net(nn.Module):
        def forward(self, x, gain=1.0):
            return x * gain
    net, box = Net(), Thing(gain=2.0)
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"gain": box.gain}), with_kwargs=True)
    return around(compile(lambda x: net(x)), put(box, gain=3.0))


def hook_called_even_after_an_error(compile):
    class Net(nn.Module):
        def forward(self, x):
            if box.bad:
                raise ValueError("bad")
            return x * 2.0
    net, box, seen = Net(), Thing(), []
    net.register_forward_hook(lambda m, args, out: seen.append(out is None), always_call=True)
    f = compile(lambda x: net(x))
    for n in range(6):
        box.bad = n in (2, 4)
        try:
            yield f(vec()), list(seen)
        except ValueError:
            yield list(seen)


def hook_for_all_layers(compile):
    net, seen = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), []
    f = compile(lambda x: net(x))
    yield from each(f, vec(), calls=3)
    handle = nn.modules.module.register_module_forward_pre_hook(lambda m, args: seen.append(type(m).__name__))
    try:
        yield from each(f, vec(), calls=3)
        yield seen
    finally:
        handle.remove()
    yield from each(f, vec(), calls=3)
    yield len(seen)


def hook_on_a_child_that_moves(compile):
    net, seen = nn.Sequential(nn.Tanh(), nn.Sigmoid()), []
    net[1].register_forward_hook(lambda m, args, out: seen.append(1) or out * 2.0)

    def swap():
        net[0], net[1] = net[1], net[0]
    yield from around(compile(lambda x: net(x)), swap)
    yield seen


def hook_that_looks_at_shapes(compile):
    net, seen = nn.Tanh(), []
    net.register_forward_hook(lambda m, args, out: seen.append(tuple(out.shape)))
    f = compile(lambda x: net(x))
    for n in (3, 3, 4, 3, 4, 4):
        yield f(vec(n)), list(seen)


def hook_that_looks_at_values(compile):
    net, seen = nn.Tanh(), []
    net.register_forward_hook(lambda m, args, out: seen.append(round(out.mean().item(), 3)))
    f = compile(lambda x: net(x))
    for n in range(6):
        yield f(vec() * n), list(seen)


def hook_that_prints(compile):
    return called(compile, lambda net: net.register_forward_hook(lambda m, args, out: print("hook", tuple(out.shape))) and None)


# ------------------------------------------------------------------------------------------------------- gradients on their way
def gradient_hook_counts(compile):
    seen = []
    return trained(compile, lambda net, opt: net.weight.register_hook(lambda g: seen.append(len(seen))) and seen)


def gradient_hook_keeps(compile):
    kept = []
    return trained(compile, lambda net, opt: net.bias.register_hook(lambda g: kept.append(g.clone())) and kept)


def gradient_hook_scales(compile):
    box = Thing(gain=1.0)
    return trained(compile, lambda net, opt: net.weight.register_hook(lambda g: g * box.gain) and None,
                   lambda net, opt: put(box, gain=0.1)(), lambda net, opt: put(box, gain=0.0)())


def gradient_hook_comes_and_goes(compile):
    box = Thing()
    return trained(compile, lambda net, opt: None,
                   lambda net, opt: put(box, handle=net.weight.register_hook(lambda g: g * 0.0))(),
                   lambda net, opt: box.handle.remove())


def gradient_hook_on_a_result_inside(compile):
    net, opt, x, y = line()
    seen, box = [], Thing(gain=1.0)

    @compile
    def step():
        opt.zero_grad()
        out = net(x)
        out.register_hook(lambda g: seen.append(1) or g * box.gain)
        loss = ((out - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    yield from around(step, put(box, gain=0.1), args=())
    yield final(net), seen


def gradient_hook_that_clips(compile):
    return trained(compile, lambda net, opt: [p.register_hook(lambda g: g.clamp(-0.1, 0.1)) for p in net.parameters()] and None,
                   lambda net, opt: net.weight.data.fill_(5.0))


def hook_after_accumulation_counts(compile):
    seen = []
    return trained(compile, lambda net, opt: net.weight.register_post_accumulate_grad_hook(lambda p: seen.append(1)) and seen)


def hook_after_accumulation_descends(compile):
    net, _, x, y = line()
    box = Thing(lr=0.1)
    opts = {p: optim.SGD([p], lr=0.1) for p in net.parameters()}

    def descend(p):
        opts[p].param_groups[0]["lr"] = box.lr
        opts[p].step()
        opts[p].zero_grad()
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(descend)

    @compile
    def step():
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        return loss
    yield from around(step, put(box, lr=0.5), args=())
    yield final(net)


def backward_hook_of_a_layer(compile):
    seen = []

    def prepare(net, opt):
        net.register_full_backward_hook(lambda m, given, got: seen.append([g is None for g in given]))
        return seen
    return trained(compile, prepare)


def backward_hook_of_a_layer_changes(compile):
    net, opt, x, y = task()
    box = Thing(gain=1.0)
    net[1].register_full_backward_hook(lambda m, given, got: (given[0] * box.gain,))
    net[2].register_full_backward_pre_hook(lambda m, got: (got[0] * box.gain,))
    yield from around(compile(lambda: fit(net, opt, x, y)), put(box, gain=0.5), args=())
    yield final(net)


def hook_on_a_node(compile):
    weight, seen = torch.ones(3, requires_grad=True), []

    def f(x):
        weight.grad = None
        y = (weight * x).sum()
        y.grad_fn.register_hook(lambda given, got: seen.append(len(seen)))
        y.backward()
        return weight.grad
    yield from each(compile(f), vec())
    yield seen


def hook_on_many_gradients(compile):
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    seen = []

    def f(x):
        p, q = a * x, b * x
        torch.autograd.graph.register_multi_grad_hook((p, q), lambda grads: seen.append(len(grads)))
        (p + q).sum().backward()
        return a.grad
    yield from each(compile(f), vec())
    yield seen


def hooks_on_what_is_saved(compile):
    weight, log = torch.ones(3, requires_grad=True), []

    def f(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: log.append("pack") or t, lambda t: log.append("unpack") or t):
            y = (weight * x).exp().sum()
        y.backward()
        return weight.grad
    yield from each(compile(f), vec() / 3)
    yield log


def hooks_on_what_is_saved_outside(compile):
    """The block stands around the call."""
    weight, log = torch.ones(3, requires_grad=True), []
    f = compile(lambda x: (weight * x).exp().sum())
    for n in range(6):
        weight.grad = None
        if n % 2:
            with torch.autograd.graph.saved_tensors_hooks(lambda t: log.append(1) or t * 2.0, lambda t: t):
                y = f(vec() / 3)
        else:
            y = f(vec() / 3)
        y.backward()
        yield weight.grad, len(log)


# -------------------------------------------------------------------------------------- graphs that nobody walks, or not yet
def not_walked(compile, f, show):
    """Calls whose results join a graph; only every third is walked. What shows then, and after each call."""
    f = compile(f)
    for n in range(7):
        y = f(vec())
        yield y, show()
        if n % 3 == 2:
            y.sum().backward()
            yield show()


def hook_on_a_weight_waits(compile):
    weight, seen = torch.ones(3, requires_grad=True), []
    weight.register_hook(lambda g: seen.append(len(seen)))
    return not_walked(compile, lambda x: weight * x, lambda: (list(seen), weight.grad))


def hook_on_a_result_inside_waits(compile):
    weight, seen = torch.ones(3, requires_grad=True), []

    def f(x):
        y = weight * x
        y.register_hook(lambda g: seen.append(len(seen)))
        return y * 2.0
    return not_walked(compile, f, lambda: (list(seen), weight.grad))


def hook_after_accumulation_waits(compile):
    weight, seen = torch.ones(3, requires_grad=True), []
    weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    return not_walked(compile, lambda x: weight * x, lambda: (list(seen), weight.grad))


def hook_of_a_layer_waits(compile):
    net, seen = nn.Linear(3, 3), []
    net.register_full_backward_hook(lambda m, given, got: seen.append(len(seen)))
    return not_walked(compile, lambda x: net(x) * 2.0, lambda: (list(seen), net.weight.grad))


def hooks_on_what_is_saved_wait(compile):
    weight, log = torch.ones(3, requires_grad=True), []

    def f(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: log.append("pack") or t, lambda t: log.append("unpack") or t):
            return (weight * x).exp()
    return not_walked(compile, f, lambda: (list(log), weight.grad))


def backward_of_ones_own_waits(compile):
    class Counted(torch.autograd.Function):
        log = []

        @staticmethod
        def forward(ctx, x):
            Counted.log.append("forward")
            return x * 2.0

        @staticmethod
        def backward(ctx, grad):
            Counted.log.append("backward")
            return grad * 2.0
    weight = torch.ones(3, requires_grad=True)
    return not_walked(compile, lambda x: Counted.apply(weight * x), lambda: (list(Counted.log), weight.grad))


def backward_that_prints_and_draws_waits(compile):
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, grad):
            print("backward")
            return grad * torch.rand(3)
    weight = torch.ones(3, requires_grad=True)
    return not_walked(compile, lambda x: Noisy.apply(weight * x), lambda: (weight.grad, torch.rand(1)))


def backward_that_raises_waits(compile):
    class Fragile(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("not to be walked")
    weight = torch.ones(3, requires_grad=True)
    f = compile(lambda x: Fragile.apply(weight * x))
    for n in range(6):
        y = f(vec() * n)
        yield y
        if n % 3 == 2:
            try:
                y.sum().backward()
            except ValueError as error:
                yield str(error)


def checkpointed_part_waits(compile):
    weight, seen = torch.ones(3, requires_grad=True), []

    def part(x):
        seen.append(len(seen))
        return (weight * x).exp()
    return not_walked(compile, lambda x: checkpoint(part, x, use_reentrant=False), lambda: (list(seen), weight.grad))


# -------------------------------------------------------------------------------------------------------------- optimizers
def step_hooks_count(compile):
    seen = []

    def prepare(net, opt):
        opt.register_step_pre_hook(lambda opt, args, kwargs: seen.append("pre"))
        opt.register_step_post_hook(lambda opt, args, kwargs: seen.append("post"))
        return seen
    return trained(compile, prepare)


def step_hook_changes_the_rate(compile):
    def warm(opt, args, kwargs):
        opt.param_groups[0]["lr"] *= 0.5
    return trained(compile, lambda net, opt: opt.register_step_post_hook(warm) and None)


def step_hook_comes_and_goes(compile):
    box = Thing()
    freeze = lambda opt, args, kwargs: [p.grad.zero_() for p in opt.param_groups[0]["params"]] and None
    return trained(compile, lambda net, opt: None,
                   lambda net, opt: put(box, handle=opt.register_step_pre_hook(freeze))(), lambda net, opt: box.handle.remove())


def hooks_of_the_state(compile):
    net, seen = nn.Linear(3, 1), []
    net.register_state_dict_post_hook(lambda module, state, prefix, meta: seen.append(len(state)))
    f = compile(lambda x: net(x) + sum(v.sum() for v in net.state_dict().values()))
    yield from each(f, vec())
    yield seen


def hooks_of_loading(compile):
    net, seen = nn.Linear(3, 1), []
    net.register_load_state_dict_post_hook(lambda module, keys: seen.append(1))
    saved = {k: v.clone() for k, v in net.state_dict().items()}

    def f(x):
        net.load_state_dict(saved)
        with torch.no_grad():
            net.weight.add_(1)
        return net(x)
    yield from each(compile(f), vec())
    yield seen, net.state_dict()
