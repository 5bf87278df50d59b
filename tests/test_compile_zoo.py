"""Training steps in the many ways people write them: compiled, each leaves behind exactly what it leaves behind eagerly.

A case is a builder that gives the step and everything it changes (modules, optimizers, tensors); six calls are compared with
eager ones: results, arguments, parameters, gradients, state and the random stream.
"""

from __future__ import annotations

import collections
import copy

import pytest
from compiled import agree
from zoo import batches, labels, mlp, numbers, table, trained

import flambeau as torch
from flambeau import nn, optim
from flambeau.nn import functional as F

CASES = {}
zoo = table(CASES)


# ------------------------------------------------------------------------------------------------------------ optimizers
OPTIMIZERS = {
    "sgd_nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "sgd_dampening_maximize": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.1, maximize=True),
    "amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "adam_foreach": lambda p: optim.Adam(p, lr=0.01, foreach=True),
    "adam_fused": lambda p: optim.Adam(p, lr=0.01, fused=True),
    "adamw_groups": lambda p: optim.AdamW([{"params": q, "weight_decay": 0.1 * (i % 2)} for i, q in enumerate(p)], lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "rprop": lambda p: optim.Rprop(p, lr=0.01),
    "rmsprop_centered": lambda p: optim.RMSprop(p, lr=0.01, centered=True, momentum=0.9),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.01),
    "adadelta": lambda p: optim.Adadelta(p, lr=1.0),
    "asgd": lambda p: optim.ASGD(p, lr=0.1, t0=2, lambd=0.01, weight_decay=0.1),
    "adafactor": lambda p: optim.Adafactor(p, lr=0.1, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("mode", [None, "exact"])
def test_optimizers(name, mode):
    def build():
        model = mlp()
        return trained(model, OPTIMIZERS[name](model.parameters()))
    agree(build, batches(8), 1, 0 if mode else 1e-5, mode=mode)


# ------------------------------------------------------------------------------------------------- how a step is written
@zoo(calls=[(*b, i) for i, b in enumerate(batches(8))], most=4, goes="skip and follow")
def gradient_accumulation_with_a_counter():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y, i):
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        if (i + 1) % 2 == 0:
            opt.step()
            opt.zero_grad()
        return loss
    return step, model, opt


@zoo(calls=[(*b, i % 2 == 1) for i, b in enumerate(batches(8))], most=3)
def gradient_accumulation_with_a_flag():
    model = mlp()
    opt = optim.AdamW(model.parameters(), lr=0.1)

    def step(x, y, last):
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
        return loss.detach()
    return step, model, opt


@zoo()
def gradients_set_to_zero():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        opt.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo()
def clip_values_and_norm():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        return total
    return step, model, opt


@zoo()
def average_of_weights():
    model = mlp()
    slow = copy.deepcopy(model)
    for p in slow.parameters():
        p.requires_grad_(False)
    opt = optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
        with torch.no_grad():
            for a, b in zip(slow.parameters(), model.parameters()):
                a.mul_(0.9).add_(b, alpha=0.1)
        return slow(x)
    return step, model, slow, opt


@zoo()
def swa_averaged_model():
    model = mlp()
    slow = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9))
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss
    return step, model, slow, opt


@zoo()
def label_smoothing_and_class_weights():
    model, weights = mlp(), torch.tensor([1.0, 2.0, 0.5])
    loss = nn.CrossEntropyLoss(weight=weights, label_smoothing=0.1)
    return trained(model, optim.SGD(model.parameters(), lr=0.1), loss)


@zoo()
def focal_loss():
    model = mlp()

    def focal(scores, y, gamma=2.0):
        log_p = F.log_softmax(scores, -1).gather(1, y[:, None]).squeeze(1)
        return (-(1 - log_p.exp()) ** gamma * log_p).mean()
    return trained(model, optim.Adam(model.parameters(), lr=0.01), focal)


@zoo()
def one_hot_mean_squares():
    model = mlp()

    def loss(scores, y):
        return ((scores.softmax(-1) - torch.eye(3)[y]) ** 2).sum(-1).mean()
    return trained(model, optim.SGD(model.parameters(), lr=0.1), loss)


@zoo()
def largest_and_smallest_scores():
    model = mlp()

    def loss(scores, y):
        return scores.max() - scores.min() + scores.prod(1).mean() + F.cross_entropy(scores, y) + scores.median()
    return trained(model, optim.SGD(model.parameters(), lr=0.01), loss)


@zoo()
def hard_examples_only():
    model = mlp()

    def loss(scores, y):
        return F.cross_entropy(scores, y, reduction="none").topk(3).values.mean()
    return trained(model, optim.SGD(model.parameters(), lr=0.1), loss)


@zoo()
def l1_and_l2_penalties():
    model = mlp()

    def loss(scores, y):
        penalty = sum(p.abs().sum() for p in model.parameters()) * 1e-3
        return F.cross_entropy(scores, y) + penalty + 1e-3 * sum((p ** 2).sum() for p in model.parameters())
    return trained(model, optim.SGD(model.parameters(), lr=0.1), loss)


@zoo()
def gradients_by_autograd_grad():
    model = mlp()

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p -= 0.1 * g
        return loss.detach()
    return step, model


@zoo()
def gradient_penalty():
    critic = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))
    opt = optim.Adam(critic.parameters(), lr=0.01)

    def step(x, _):
        x = x.detach().requires_grad_()
        opt.zero_grad()
        score = critic(x)
        (g,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        loss = score.mean() + ((g.norm(2, dim=1) - 1) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    return step, critic, opt


@zoo(goes="follow")
def inner_loop():
    """A step of an inner training whose own gradient is taken (MAML)."""
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        params = dict(model.named_parameters())
        for _ in range(2):
            inner = F.cross_entropy(torch.func.functional_call(model, params, (x[:4],)), y[:4])
            grads = torch.autograd.grad(inner, list(params.values()), create_graph=True)
            params = {k: p - 0.1 * g for (k, p), g in zip(params.items(), grads)}
        outer = F.cross_entropy(torch.func.functional_call(model, params, (x[4:],)), y[4:])
        outer.backward()
        opt.step()
        return outer
    return step, model, opt


@zoo()
def sharpness_aware():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moves = [p.grad * (0.05 / (norm + 1e-12)) for p in model.parameters()]
            for p, e in zip(model.parameters(), moves):
                p.add_(e)
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p, e in zip(model.parameters(), moves):
                p.sub_(e)
        opt.step()
        return loss
    return step, model, opt


@zoo(goes="follow")
def hooks_on_parameters_and_modules():
    model = mlp()
    for p in model.parameters():
        p.register_hook(lambda g: g.clamp(-0.05, 0.05))
    model[0].register_forward_hook(lambda m, args, out: out * 1.5)
    model[2].register_full_backward_hook(lambda m, given, grads: tuple(g * 2 for g in given))
    return trained(model, optim.SGD(model.parameters(), lr=0.1))


@zoo()
def a_loss_scaler():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        (loss * 1024.0).backward()
        with torch.no_grad():
            for p in model.parameters():
                p.grad.div_(1024.0)
        opt.step()
        return loss
    return step, model, opt


@zoo(goes="follow")
def grad_scaler():
    model = mlp()
    opt, scaler = optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return loss
    return step, model, opt


@zoo()
def autocast_inside():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo()
def frozen_layers():
    model = mlp()
    model[0].requires_grad_(False)
    return trained(model, optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01))


@zoo(goes="follow")
def checkpointed_layers():
    model = mlp(5, 7, 3, nn.Dropout(0.3))
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        hidden = torch.utils.checkpoint.checkpoint(model[:3], x, use_reentrant=False)
        loss = F.cross_entropy(model[3](hidden), y)
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


# --------------------------------------------------------------------------------------------------- arguments and results
Batch = collections.namedtuple("Batch", "x y")


@zoo(calls=[(Batch(*b),) for b in batches()])
def named_tuples():
    model = mlp()
    inner, *parts = trained(model, optim.SGD(model.parameters(), lr=0.1))
    return lambda batch: Batch(inner(batch.x, batch.y), batch.y), *parts


@zoo(calls=[({"x": x, "y": y, "more": [x, (y, 2)]},) for x, y in batches()])
def dictionaries():
    model = mlp()
    inner, *parts = trained(model, optim.SGD(model.parameters(), lr=0.1))
    return lambda batch: {"loss": inner(batch["x"], batch["y"]), "n": batch["more"][1][1]}, *parts


@zoo(calls=batches(4) + batches(1, rows=5) + batches(4) + batches(2, rows=5), most=2)
def a_smaller_last_batch():
    model = mlp()
    return trained(model, optim.Adam(model.parameters(), lr=0.01))


@zoo(calls=[(numbers(2 + i % 4, 5, seed=i), labels(2 + i % 4, 3, seed=i)) for i in range(12)], most=4)
def many_batch_sizes():
    model = mlp(5, 7, 3, nn.BatchNorm1d(7))
    return trained(model, optim.SGD(model.parameters(), lr=0.1))


def lowered(rate):
    """Changes the learning rate before a call, as schedulers do."""
    def change(x, y):
        def call(model, opt):
            opt.param_groups[0]["lr"] *= rate
            return x, y
        return call
    return change


@zoo(calls=[lowered(0.7)(*b) for b in batches()])
def rates_that_change_between_calls():
    model = mlp()
    return trained(model, optim.Adam(model.parameters(), lr=0.01))


def saved_and_loaded(x, y):
    def call(model, opt):
        state = copy.deepcopy((model.state_dict(), opt.state_dict()))
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        model.load_state_dict(state[0])
        opt.load_state_dict(state[1])
        return x, y
    return call


@zoo(calls=[saved_and_loaded(*b) if i in (2, 5) else b for i, b in enumerate(batches(8))], most=3)
def checkpoints_in_between():
    model = mlp(5, 7, 3, nn.BatchNorm1d(7))
    return trained(model, optim.Adam(model.parameters(), lr=0.01))


def unfrozen(x, y):
    def call(model, opt):
        if not model[0].weight.requires_grad:
            model[0].requires_grad_(True)
            opt.add_param_group({"params": list(model[0].parameters()), "lr": 0.001})
        return x, y
    return call


@zoo(calls=[unfrozen(*b) if i > 2 else b for i, b in enumerate(batches(8))], most=2)
def layers_unfrozen_later():
    model = mlp()
    model[0].requires_grad_(False)
    return trained(model, optim.Adam(model[2].parameters(), lr=0.01))


@zoo(calls=[lambda model, opt, b=b, i=i: (b[0], b[1], 0.1 * i) for i, b in enumerate(batches())], most=2)
def a_float_that_anneals():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y, beta):
        opt.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y) + beta * out.square().mean()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=[(*b, torch.tensor(0.1 * i)) for i, b in enumerate(batches())])
def a_tensor_that_anneals():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y, beta):
        opt.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y) + beta * out.square().mean()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@pytest.mark.parametrize("name", CASES)
def test_training_steps(name):
    build, calls, most, goes = CASES[name]
    agree(build, calls, most, goes=goes)
