"""Training steps whose optimizer changes: rates, options, groups, state, schedulers."""

from __future__ import annotations

import copy
import math
import random
from math import cos

from soundness.world import Thing, around, each, final, fit, item, line, nn, optim, put, task, torch


def sgd(ps):
    return optim.SGD(ps, lr=0.1)


def momentum(ps):
    return optim.SGD(ps, lr=0.05, momentum=0.9)


def adam(ps):
    return optim.Adam(ps, lr=0.05)


def trained(compile, make, *changes):
    """Training with changes of the net and the optimizer on the way."""
    net, opt, x, y = line(make)
    yield from around(compile(lambda: fit(net, opt, x, y)), *[lambda c=c: c(net, opt) for c in changes], args=())
    yield final(net, opt)


def option(**values):
    return lambda net, opt: opt.param_groups[0].update(values)


# ------------------------------------------------------------------------------------------------------------------ options
def rate(compile):
    return trained(compile, adam, option(lr=0.5), option(lr=0.0), option(lr=1))


def rate_at_each_step(compile):
    net, opt, x, y = line(momentum)
    step = compile(lambda: fit(net, opt, x, y))
    for n in range(8):
        opt.param_groups[0]["lr"] = 0.1 / (1 + n)
        yield step()
    yield final(net, opt)


def rate_as_a_tensor(compile):
    rate = torch.tensor(0.05)
    net, opt, x, y = line(lambda ps: optim.Adam(ps, lr=rate))
    yield from around(compile(lambda: fit(net, opt, x, y)), lambda: rate.fill_(0.5),
                      lambda: opt.param_groups[0].update(lr=torch.tensor(0.01)), args=())
    yield final(net)


def rate_in_the_arithmetic(compile):
    net, opt, x, y = line()

    @compile
    def step():
        loss = fit(net, opt, x, y)
        return loss * opt.param_groups[0]["lr"], math.log(opt.param_groups[0]["lr"])
    return around(step, item(opt.param_groups[0], "lr", 0.5), args=())


def rate_logged(compile):
    net, opt, x, y = line()
    log = []

    @compile
    def step():
        log.append(opt.param_groups[0]["lr"])
        print(f"{log[-1]:.2f}")
        return fit(net, opt, x, y)
    yield from around(step, item(opt.param_groups[0], "lr", 0.5), args=())
    yield log


def rate_compared(compile):
    net, opt, x, y = line()
    step = compile(lambda: fit(net, opt, x, y) * (2.0 if opt.param_groups[0]["lr"] > 0.2 else 3.0))
    return around(step, item(opt.param_groups[0], "lr", 0.15), item(opt.param_groups[0], "lr", 0.5), args=())


def decay_of_weights(compile):
    return trained(compile, adam, option(weight_decay=0.5), option(weight_decay=0))


def direction(compile):
    return trained(compile, momentum, option(maximize=True), option(maximize=False))


def momentum_and_dampening(compile):
    return trained(compile, momentum, option(momentum=0.5), option(dampening=0.5), option(dampening=0, nesterov=True),
                   option(nesterov=False, momentum=0))


def momentum_switched_on(compile):
    return trained(compile, sgd, option(momentum=0.9), option(momentum=0.5))


def betas_and_eps(compile):
    return trained(compile, adam, option(betas=(0.5, 0.9)), option(eps=1.0))


def amsgrad_switched_on(compile):
    return trained(compile, lambda ps: optim.Adam(ps, lr=0.05, amsgrad=True), option(lr=0.5), option(amsgrad=False))


def option_of_ones_own(compile):
    net, opt, x, y = line()
    opt.param_groups[0]["gain"] = 2.0
    step = compile(lambda: fit(net, opt, x, y) * opt.param_groups[0]["gain"])
    return around(step, item(opt.param_groups[0], "gain", 3.0), args=())


def defaults_that_have_no_effect(compile):
    net, opt, x, y = line()
    step = compile(lambda: fit(net, opt, x, y) * opt.defaults["lr"])
    return around(step, item(opt.defaults, "lr", 0.5), args=())


def options_of_many_optimizers(compile):
    makers = [lambda ps: optim.RMSprop(ps, lr=0.01), lambda ps: optim.Adagrad(ps, lr=0.1), lambda ps: optim.Adamax(ps, lr=0.05),
              lambda ps: optim.NAdam(ps, lr=0.05), lambda ps: optim.Rprop(ps, lr=0.01)]
    for make in makers:
        yield from trained(compile, make, option(lr=0.2))


# ----------------------------------------------------------------------------------------------------- groups, parameters
def group_added(compile):
    net, opt, x, y = task(lambda ps: optim.SGD(list(ps)[:2], lr=0.1))
    yield from around(compile(lambda: fit(net, opt, x, y)),
                      lambda: opt.add_param_group({"params": list(net.parameters())[2:], "lr": 0.5}), args=())
    yield final(net, opt)


def group_removed(compile):
    net, opt, x, y = line(lambda ps: optim.SGD([{"params": [p]} for p in ps], lr=0.1))
    yield from around(compile(lambda: fit(net, opt, x, y)), opt.param_groups.pop, args=())
    yield final(net)


def groups_exchanged(compile):
    net, opt, x, y = line(lambda ps: optim.SGD([{"params": [p], "lr": 0.1 * (n + 1)} for n, p in enumerate(ps)]))

    def change():
        a, b = opt.param_groups
        a["params"], b["params"] = b["params"], a["params"]
    yield from around(compile(lambda: fit(net, opt, x, y)), change, args=())
    yield final(net)


def group_options_apart(compile):
    net, opt, x, y = line(lambda ps: optim.Adam([{"params": [p]} for p in ps], lr=0.1))
    yield from around(compile(lambda: fit(net, opt, x, y)), item(opt.param_groups[1], "lr", 0.5),
                      item(opt.param_groups[0], "weight_decay", 0.5), args=())
    yield final(net)


def parameter_taken_out_of_its_group(compile):
    return trained(compile, sgd, lambda net, opt: opt.param_groups[0]["params"].pop(),
                   lambda net, opt: opt.param_groups[0]["params"].append(net.bias))


def parameter_replaced_in_its_group(compile):
    def change(net, opt):
        opt.state.pop(net.weight)
        net.weight = nn.Parameter(torch.ones(1, 3))
        opt.param_groups[0]["params"][0] = net.weight
    return trained(compile, momentum, change)


def parameter_frozen(compile):
    return trained(compile, adam, lambda net, opt: net.weight.requires_grad_(False),
                   lambda net, opt: net.weight.requires_grad_(True))


def parameter_without_a_gradient(compile):
    net, opt, x, y = line(adam)
    box = Thing(skip=False)

    @compile
    def step():
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        if box.skip:
            net.bias.grad = None
        opt.step()
        return loss
    yield from around(step, put(box, skip=True), put(box, skip=False), args=())
    yield final(net, opt)


# -------------------------------------------------------------------------------------------------------------------- state
def state_cleared(compile):
    return trained(compile, adam, lambda net, opt: opt.state.clear())


def state_of_one_parameter_dropped(compile):
    return trained(compile, adam, lambda net, opt: opt.state.pop(net.bias))


def state_written(compile):
    return trained(compile, adam, lambda net, opt: opt.state[net.weight]["exp_avg"].zero_(),
                   lambda net, opt: opt.state[net.weight]["step"].fill_(100.0))


def state_replaced(compile):
    def change(net, opt):
        opt.state[net.weight]["momentum_buffer"] = torch.ones(1, 3)
    return trained(compile, momentum, change, lambda net, opt: opt.state[net.weight].update(momentum_buffer=None))


def state_loaded(compile):
    kept = []
    return trained(compile, adam, lambda net, opt: kept.append(copy.deepcopy(opt.state_dict())),
                   lambda net, opt: opt.load_state_dict(kept[0]))


def state_loaded_with_another_rate(compile):
    def change(net, opt):
        state = opt.state_dict()
        state["param_groups"][0]["lr"] = 0.5
        opt.load_state_dict(state)
    return trained(compile, momentum, change)


def state_read_by_the_call(compile):
    net, opt, x, y = line(adam)

    @compile
    def step():
        loss = fit(net, opt, x, y)
        return loss, opt.state[net.weight]["exp_avg"].abs().sum(), float(opt.state[net.weight]["step"])
    return around(step, opt.state.clear, args=())


def optimizer_swapped(compile):
    net, opt, x, y = line()
    box = Thing(opt=opt)
    yield from around(compile(lambda: fit(net, box.opt, x, y)), lambda: put(box, opt=adam(net.parameters()))(),
                      put(box, opt=opt), args=())
    yield final(net, opt)


def optimizer_made_in_the_call(compile):
    net, _, x, y = line()
    yield from each(compile(lambda: fit(net, optim.Adam(net.parameters(), lr=0.05), x, y)))
    yield final(net)


def optimizers_in_turn(compile):
    """Two nets against each other, each with an optimizer of its own."""
    a, one, x, y = line(adam)
    b, two, _, _ = line(momentum)
    box = Thing(n=0)

    @compile
    def step():
        box.n += 1
        net, opt, other = (a, one, b) if box.n % 2 else (b, two, a)
        opt.zero_grad()
        loss = ((net(x) - other(x).detach()) ** 2).mean() + ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    yield from each(step, calls=8)
    yield final(a, one), final(b, two)


# ---------------------------------------------------------------------------------------------------------------- gradients
def gradients_zeroed_each_way(compile):
    net, opt, x, y = line(momentum)
    box = Thing(none=True)

    @compile
    def step():
        opt.zero_grad(set_to_none=box.none)
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    yield from around(step, put(box, none=False), put(box, none=True), args=())
    yield final(net, opt)


def gradients_zeroed_after(compile):
    net, opt, x, y = line(momentum)

    @compile
    def step():
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    yield from around(step, lambda: put(net.bias, grad=torch.ones(1))(), args=())
    yield final(net, opt)


def gradients_gathered_by_a_count(compile):
    net, opt, x, y = line(adam)
    box = Thing(n=0, every=2)

    @compile
    def step():
        box.n += 1
        loss = ((net(x) - y) ** 2).mean() / box.every
        loss.backward()
        if box.n % box.every == 0:
            opt.step()
            opt.zero_grad()
        return loss
    yield from around(step, put(box, every=3), args=(), every=5)
    yield final(net, opt), box.n


def gradients_clipped(compile):
    net, opt, x, y = line()
    box = Thing(limit=0.1, how="norm")

    @compile
    def step():
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        if box.how == "norm":
            found = nn.utils.clip_grad_norm_(net.parameters(), box.limit)
        else:
            found = nn.utils.clip_grad_value_(net.parameters(), box.limit)
        opt.step()
        return loss, found
    yield from around(step, put(box, limit=0.01), put(box, how="value"), args=())
    yield final(net)


def gradients_with_noise(compile):
    net, opt, x, y = line()

    @compile
    def step():
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        for p in net.parameters():
            p.grad += torch.randn_like(p) * random.random()
        opt.step()
        return loss
    yield from each(step)
    yield final(net)


def gradients_scaled(compile):
    net, opt, x, y = line()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

    @compile
    def step(y):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss
    for n in range(8):
        yield step(y * float("inf") if n == 3 else y), scaler.get_scale()
    yield final(net), scaler.state_dict()


# --------------------------------------------------------------------------------------------------------------- schedulers
SCHEDULES = {
    "step": lambda opt: optim.lr_scheduler.StepLR(opt, 2, 0.5),
    "lambda": lambda opt: optim.lr_scheduler.LambdaLR(opt, lambda n: 1 / (1 + n)),
    "cosine": lambda opt: optim.lr_scheduler.CosineAnnealingLR(opt, 5),
    "cycle": lambda opt: optim.lr_scheduler.OneCycleLR(opt, max_lr=0.2, total_steps=10),
    "warm": lambda opt: optim.lr_scheduler.SequentialLR(opt, [optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=2),
                                                              optim.lr_scheduler.ExponentialLR(opt, 0.5)], [3]),
}


def scheduled(compile, kind, inside):
    net, opt, x, y = line(momentum)
    schedule = SCHEDULES[kind](opt)

    def step():
        loss = fit(net, opt, x, y)
        if inside:
            schedule.step()
        return loss
    step = compile(step)
    for _ in range(7):
        yield step(), schedule.get_last_lr()
        if not inside:
            schedule.step()
    yield final(net, opt), schedule.state_dict()["last_epoch"]


def schedule_of_steps_inside(compile):
    return scheduled(compile, "step", True)


def schedule_of_a_function_inside(compile):
    return scheduled(compile, "lambda", True)


def schedule_of_a_function_outside(compile):
    return scheduled(compile, "lambda", False)


def schedule_of_a_cosine_inside(compile):
    return scheduled(compile, "cosine", True)


def schedule_of_one_cycle_inside(compile):
    return scheduled(compile, "cycle", True)


def schedule_with_a_warm_start_inside(compile):
    return scheduled(compile, "warm", True)


def schedule_with_a_warm_start_outside(compile):
    return scheduled(compile, "warm", False)


def schedule_by_the_loss_inside(compile):
    net, opt, x, y = line()
    schedule = optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5, threshold=0.5)

    @compile
    def step():
        loss = fit(net, opt, x, y)
        schedule.step(loss.item())
        return loss
    for _ in range(7):
        yield step(), opt.param_groups[0]["lr"]
    yield final(net, opt)


def schedule_asked_inside(compile):
    net, opt, x, y = line()
    schedule = optim.lr_scheduler.StepLR(opt, 1, 0.5)
    step = compile(lambda: fit(net, opt, x, y) * schedule.get_last_lr()[0])
    return around(step, schedule.step, schedule.step, args=())


def schedule_with_a_lambda_that_changes(compile):
    net, opt, x, y = line()
    box = Thing(decay=0.5)
    schedule = optim.lr_scheduler.LambdaLR(opt, lambda n: box.decay ** n)

    @compile
    def step():
        loss = fit(net, opt, x, y)
        schedule.step()
        return loss, opt.param_groups[0]["lr"]
    return around(step, put(box, decay=0.9), args=())


def schedule_loaded(compile):
    net, opt, x, y = line()
    schedule = optim.lr_scheduler.ExponentialLR(opt, 0.5)

    @compile
    def step():
        loss = fit(net, opt, x, y)
        schedule.step()
        return loss
    saved = schedule.state_dict().copy()
    yield from around(step, lambda: schedule.load_state_dict(saved), args=())
    yield opt.param_groups[0]["lr"], schedule.get_last_lr()


def schedule_by_hand(compile):
    net, opt, x, y = line()
    box = Thing(n=0)

    @compile
    def step():
        box.n += 1
        for group in opt.param_groups:
            group["lr"] = 0.05 * (1 + cos(math.pi * min(box.n, 6) / 6))
        return fit(net, opt, x, y)
    yield from around(step, put(box, n=0), args=())
    yield opt.param_groups[0]["lr"]
