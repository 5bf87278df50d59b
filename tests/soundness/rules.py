"""Optimizers of one's own: with Python numbers, histories, chance and clocks in their state; optimizers patched and wrapped."""

from __future__ import annotations

import random
import time
from math import sqrt

from soundness.optimizers import option, trained
from soundness.world import Thing, around, each, final, fit, line, optim, put, torch


class Own(optim.Optimizer):
    """Descends by `rule`, a function of the optimizer, the group, the parameter and its state."""

    def __init__(self, ps, rule, **options):
        super().__init__(ps, {"lr": 0.1, **options})
        self.rule, self.steps = rule, 0

    @torch.no_grad()
    def step(self, closure=None):
        self.steps += 1
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.rule(self, group, p, self.state[p])


def own(compile, rule, *changes, **options):
    return trained(compile, lambda ps: Own(ps, rule, **options), *changes)


def own_with_a_square_root(compile):
    return own(compile, lambda opt, group, p, state: p.sub_(p.grad * sqrt(group["lr"])), option(lr=0.25), option(lr=0.01))


def own_with_a_count(compile):
    return own(compile, lambda opt, group, p, state: p.sub_(p.grad * (group["lr"] / sqrt(opt.steps))),
               lambda net, opt: put(opt, steps=0)())


def own_with_a_count_in_its_state(compile):
    def rule(opt, group, p, state):
        state["n"] = state.get("n", 0) + 1
        mean = state.setdefault("mean", torch.zeros_like(p))
        mean.lerp_(p.grad, 1 / state["n"])
        p.sub_(mean, alpha=group["lr"])
    return own(compile, rule, lambda net, opt: opt.state[net.bias].update(n=0))


def own_with_a_history(compile):
    def rule(opt, group, p, state):
        past = state.setdefault("past", [])
        past.append(p.grad.clone())
        del past[:-2]
        p.sub_(sum(past) / len(past), alpha=group["lr"])
    return own(compile, rule)


def own_with_the_sign(compile):
    def rule(opt, group, p, state):
        p.sub_(p.grad.sign() if group["sign"] else p.grad, alpha=group["lr"])
    return own(compile, rule, option(sign=True), option(sign=False), sign=False)


def own_with_a_norm(compile):
    def rule(opt, group, p, state):
        ratio = p.norm().item() / (p.grad.norm().item() + 1e-3)
        p.sub_(p.grad, alpha=group["lr"] * min(ratio, 1.0))
    return own(compile, rule)


def own_with_chance(compile):
    def rule(opt, group, p, state):
        if random.random() < 0.7:
            p.sub_(p.grad * torch.rand_like(p), alpha=group["lr"])
    return own(compile, rule)


def own_with_a_clock(compile):
    def rule(opt, group, p, state):
        state["at"] = time.monotonic_ns()
        p.sub_(p.grad, alpha=group["lr"])
    net, opt, x, y = line(lambda ps: Own(ps, rule))
    step = compile(lambda: fit(net, opt, x, y))
    seen = []
    for _ in range(6):
        yield step()
        seen.append(opt.state[net.weight]["at"])
    yield len(set(seen))


def own_that_looks_ahead(compile):
    def rule(opt, group, p, state):
        slow = state.setdefault("slow", p.clone())
        p.sub_(p.grad, alpha=group["lr"])
        if opt.steps % group["every"] == 0:
            slow.lerp_(p, 0.5)
            p.copy_(slow)
    return own(compile, rule, option(every=2), every=3)


def own_on_top_of_another(compile):
    class Clipped(optim.SGD):
        limit, clipped = 0.1, 0

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad.abs().max() > self.limit:
                        self.clipped += 1
                        p.grad.clamp_(-self.limit, self.limit)
            return super().step(closure)
    net, opt, x, y = line(lambda ps: Clipped(ps, lr=0.1, momentum=0.9))
    yield from around(compile(lambda: fit(net, opt, x, y)), put(opt, limit=0.01), args=())
    yield final(net, opt), opt.clipped


def own_step_patched(compile):
    net, opt, x, y = line()
    plain, seen = opt.step, []
    yield from around(compile(lambda: fit(net, opt, x, y)), put(opt, step=lambda: seen.append(1) or plain()),
                      lambda: delattr(opt, "step"), args=())
    yield final(net), seen


def closure_evaluated_again(compile):
    net, opt, x, y = line(lambda ps: optim.LBFGS(ps, lr=0.5, max_iter=3))
    seen = []

    @compile
    def step():
        def closure():
            seen.append(1)
            opt.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            return loss
        return opt.step(closure)
    yield from each(step, calls=4)
    yield net.state_dict(), len(seen)


def weights_averaged(compile):
    from flambeau.optim.swa_utils import AveragedModel
    net, opt, x, y = line()
    average = AveragedModel(net)
    box = Thing(start=2, n=0)

    @compile
    def step():
        box.n += 1
        loss = fit(net, opt, x, y)
        if box.n > box.start:
            average.update_parameters(net)
        return loss
    yield from each(step)
    yield final(net), average.state_dict()
