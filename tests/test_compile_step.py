"""Whole training steps, compiled against eager: results, parameters, gradients, optimizer state, buffers, random state."""

from __future__ import annotations

import pytest
from compiled import agree, programs, same_seen, seen, trace
from trainers import OPTIMIZERS, batch, network, small, trainer

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.utils.checkpoint import checkpoint


def test_whole_step_with_batch_norm_and_dropout():
    agree(trainer(lambda p: optim.Adam(p, lr=0.01), clip=lambda p: nn.utils.clip_grad_norm_(p, 0.5)), [batch()] * 6, 1)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name):
    agree(trainer(OPTIMIZERS[name], small), [batch()] * 9, 1)


def test_lbfgs_with_a_closure():
    def build():
        net = small().double()  # its line search makes much of rounding
        opt = optim.LBFGS(net.parameters(), lr=0.5, max_iter=3)

        def step(x, y):
            def closure():
                opt.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                return loss
            return opt.step(closure)
        return step, net, opt
    x, y = batch()
    agree(build, [(x.double(), y)] * 6, goes="follow")


def test_hyper_parameters_are_read_at_each_call():
    def changed(key, value):
        def call(net, opt):
            opt.param_groups[0][key] = value
            return batch()
        return call
    adam = [changed("lr", 0.5), changed("betas", (0.5, 0.9)), changed("eps", 1e-3), changed("weight_decay", 0.3), batch()]
    agree(trainer(lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1), small), [batch()] * 3 + adam, 1)
    sgd = [changed("momentum", 0.2), changed("lr", 1), batch(), changed("lr", 0.25)]
    agree(trainer(model=small), [batch()] * 3 + sgd, 1)


def test_zero_hyper_parameters_are_numbers_like_others():
    def changed(key, value):
        def call(net, opt):
            opt.param_groups[0][key] = value
            return batch()
        return call
    fn = agree(trainer(lambda p: optim.SGD(p, lr=0.1, momentum=0.9), small),
               [batch(), batch(), batch(), changed("weight_decay", 0.5), batch(), changed("weight_decay", 0.0), batch()])
    assert programs(fn) == 1


@pytest.mark.parametrize("schedule", [
    lambda opt: optim.lr_scheduler.StepLR(opt, 2, 0.1),
    lambda opt: optim.lr_scheduler.CosineAnnealingLR(opt, 10),
    lambda opt: optim.lr_scheduler.OneCycleLR(opt, 0.3, total_steps=20),   # changes the momentum too
])
def test_schedulers_outside_add_no_program(schedule):
    def build():
        step, net, opt = trainer(model=small)()
        return step, net, opt, schedule(opt)

    def call(net, opt, scheduler):
        if opt.state:
            scheduler.step()
        return batch()
    agree(build, [call] * 7, 1)


def test_scheduler_inside_is_not_repeated_wrongly():
    def build():
        step, net, opt = trainer(model=small)()
        scheduler = optim.lr_scheduler.StepLR(opt, 2, 0.5)

        def both(x, y):
            loss = step(x, y)
            scheduler.step()
            return loss
        return both, net, opt
    agree(build, [batch()] * 8, goes="follow")


@pytest.mark.parametrize("clip", [
    lambda p: nn.utils.clip_grad_norm_(p, 0.1), lambda p: nn.utils.clip_grad_norm_(p, 100.0),
    lambda p: nn.utils.clip_grad_norm_(p, 0.1, norm_type=float("inf")),
    lambda p: nn.utils.clip_grad_norm_(p, 0.1, norm_type=1.0),
    lambda p: nn.utils.clip_grad_value_(p, 0.01),
])
def test_clipping(clip):
    agree(trainer(model=small, clip=clip), [batch()] * 5, 1)


def test_norm_of_clipping_is_returned():
    def build():
        net = small()

        def step(x, y):
            net.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return nn.utils.clip_grad_norm_(net.parameters(), 0.1), loss.detach()
        return step, net
    agree(build, [batch()] * 4, 1)


def test_gradient_accumulation_inside_one_step():
    def build():
        net, opt = (n := network()), optim.SGD(n.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            total = 0
            for part, labels in zip(x.chunk(3), y.chunk(3)):
                loss = F.cross_entropy(net(part), labels) / 3
                loss.backward()
                total = total + loss.detach()
            opt.step()
            return total
        return step, net, opt
    agree(build, [batch()] * 4, 1)


def test_gradient_accumulation_over_calls():
    """A micro-step that only adds to the gradients, and an eager optimizer step every third call."""
    def build():
        net, opt = (n := small()), optim.SGD(n.parameters(), lr=0.1)
        opt.count = 0

        def micro(x, y):
            loss = F.cross_entropy(net(x), y) / 3
            loss.backward()
            return loss
        return micro, net, opt

    def call(net, opt):
        if opt.count % 3 == 0:
            if opt.count:
                opt.step()
            opt.zero_grad()
        opt.count += 1
        return batch()
    agree(build, [call] * 8, 2)


def test_zero_grad_that_keeps_the_tensors():
    def build():
        net = small()
        opt = optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad(set_to_none=False)
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            return loss
        return step, net, opt
    agree(build, [batch()] * 5, 2)


def test_two_optimizers_and_two_backward_passes():
    """The course of a GAN: each side's step leaves the other's weights alone."""
    def build():
        maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
        first, second = optim.Adam(maker.parameters(), lr=0.01), optim.SGD(judge.parameters(), lr=0.1)

        def step(x):
            second.zero_grad()
            fake = maker(torch.randn(5, 4))
            a = F.softplus(-judge(x)).mean() + F.softplus(judge(fake.detach())).mean()
            a.backward()
            second.step()
            first.zero_grad()
            b = F.softplus(-judge(fake)).mean()
            b.backward()
            first.step()
            return a, b
        return step, maker, judge, first, second
    agree(build, [batch()[:1]] * 6, 1)


def test_frozen_parameters():
    def build():
        net = network()
        net[0].weight.requires_grad_(False)
        opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            return loss
        return step, net, opt
    agree(build, [batch()] * 5, 1)


def test_shared_parameters_and_unused_ones():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out, self.spare = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False), nn.Linear(2, 2)
            self.out.weight = self.embed.weight

        def forward(self, x):
            return self.out(self.embed(x))

    words = torch.tensor([[1, 2, 3], [3, 3, 0]])
    build = trainer(lambda p: optim.AdamW(p, lr=0.05), Tied,
                    loss_of=lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()))
    agree(build, [(words, words.flip(1))] * 5, 1)


def test_tensor_hooks_and_post_accumulate_hooks():
    def halve(p):
        p.grad.mul_(0.5)

    def build():
        net = small()
        net[0].weight.register_hook(lambda g: g * 2)
        net[2].weight.register_post_accumulate_grad_hook(halve)

        def step(x, y):
            net.zero_grad()
            hidden = net[0](x)
            hidden.register_hook(lambda g: g.clamp(-0.01, 0.01))
            loss = F.cross_entropy(net[2](hidden.tanh()), y)
            loss.backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.1 * p.grad
            return loss
        return step, net
    agree(build, [batch()] * 6, goes="follow")


def test_module_hooks():
    def build():
        net = small()
        net[0].register_forward_hook(lambda m, args, out: out * 1.5)
        net[2].register_forward_pre_hook(lambda m, args: (args[0] + 0.1,))
        net[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
        opt = optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            return loss
        return step, net, opt
    agree(build, [batch()] * 6, goes="follow")


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * x * 2.5   # on purpose not the derivative


def test_custom_function():
    def build():
        net = small()

        def step(x, y):
            net.zero_grad()
            loss = F.cross_entropy(Cube.apply(net(x)), y)
            loss.backward()
            return loss
        return step, net
    agree(build, [batch()] * 4, 1)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_the_same_mask_again(reentrant):
    def build():
        net = network()
        opt = optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            hidden = net[0](x)
            loss = F.cross_entropy(checkpoint(net[1:], hidden, use_reentrant=reentrant), y)
            loss.backward()
            opt.step()
            return loss
        return step, net, opt
    agree(build, [batch()] * 6, goes="follow")


def test_no_grad_and_eval_calls_between_steps():
    def build():
        net = network()
        opt = optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            if net.training:
                opt.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                opt.step()
                return loss
            with torch.no_grad():
                return (net(x).argmax(1) == y).float().mean()
        return step, net, opt

    def train(net, opt):
        net.train()
        return batch()

    def judge(net, opt):
        net.eval()
        return batch()
    agree(build, [train, train, judge, train, judge, judge, train], 2)


def test_eager_and_compiled_calls_mixed():
    expected, _ = trace(trainer(lambda p: optim.Adam(p, lr=0.01)), [batch()] * 10, lambda f: f)
    torch.manual_seed(0)
    step, net, opt = trainer(lambda p: optim.Adam(p, lr=0.01))()
    fn = torch.compile(step)
    for i in range(10):
        loss = (fn if i in (0, 1, 2, 4, 5, 8) else step)(*batch())
        same_seen(expected[i][0], seen(loss))
        same_seen(expected[i][2], seen([net, opt]))
        same_seen(expected[i][3], seen(torch.get_rng_state()))
    assert programs(fn) == 1
