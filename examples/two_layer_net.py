"""A two-layer network three ways: gradients by hand, with autograd, and with a Function of our own.

All three start from the same weights and take the same steps, so their losses must agree; the program checks it.
Prints the loss of each as it falls, and that they agree.
"""

from common import Progress, command_line

import flambeau as torch


def data_and_weights(seed):
    torch.manual_seed(seed)
    x, y = torch.randn(64, 1000), torch.randn(64, 10)
    # Dividing by the square root of the inputs' number keeps the size of what passes through.
    w1, w2 = torch.randn(1000, 100) / 1000 ** 0.5, torch.randn(100, 10) / 100 ** 0.5
    return x, y, w1, w2


def by_hand(bar, seed, rate):
    """Forward, then the chain rule written out, line by line backwards."""
    x, y, w1, w2 = data_and_weights(seed)
    losses = []
    for _ in bar:
        hidden = x @ w1
        active = hidden.clamp(min=0)
        error = active @ w2 - y
        losses.append((error ** 2).mean().item())

        grad_out = 2 * error / error.numel()      # of the mean of squares
        grad_w2 = active.t() @ grad_out
        grad_active = grad_out @ w2.t()
        grad_hidden = grad_active * (hidden > 0)  # the gradient passes only where the unit was on
        grad_w1 = x.t() @ grad_hidden
        w1 -= rate * grad_w1
        w2 -= rate * grad_w2
        bar.note(loss=losses[-1])
    return losses


def by_autograd(bar, seed, rate, relu=lambda hidden: hidden.clamp(min=0)):
    """Only the forward pass is written; backward() finds the gradients."""
    x, y, w1, w2 = data_and_weights(seed)
    w1.requires_grad_()
    w2.requires_grad_()
    losses = []
    for _ in bar:
        loss = ((relu(x @ w1) @ w2 - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():  # the update itself is not part of what is differentiated
            for w in (w1, w2):
                w -= rate * w.grad
                w.grad = None  # or the next backward() would add to it
        losses.append(loss.item())
        bar.note(loss=losses[-1])
    return losses


class Rectify(torch.autograd.Function):
    """max(x, 0), with a derivative that we define ourselves."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x > 0)


def by_function(bar, seed, rate):
    """Autograd again, with our own operation in the middle."""
    return by_autograd(bar, seed, rate, relu=Rectify.apply)


def main(steps=200, seed=0, rate=0.3, quiet=False):
    curves = {}
    for way in (by_hand, by_autograd, by_function):
        if not quiet:
            print(f"{way.__name__.replace('_', ' ')}:")
        bar = Progress(steps, quiet)
        bar.counter = iter(bar)
        curves[way.__name__] = way(bar, seed, rate)
    first, *others = curves.values()
    for other in others:
        assert all(abs(a - b) <= 1e-4 * a + 1e-6 for a, b in zip(first, other)), "the three ways disagree"
    if not quiet:
        print(f"\nall three agree; loss after {steps} steps: {first[-1]:.3g}")
    return first


if __name__ == "__main__":
    command_line(main, __doc__)
