"""Programs around autograd as people write them (PyTorch's notes and tutorials), compared with torch."""

import copy
import importlib
import pickle
import threading

import pytest
from compare import Programs, agree, leaf

programs = Programs()


@programs
def custom_subclass_input(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    p = mod.nn.Parameter(mod.ones(2))
    y = F.apply(p)
    y.sum().backward()
    return p.grad, y.grad_fn.name()


@programs
def detach_view(mod):
    x = leaf(mod)
    x[:1].detach_()


@programs
def deepcopy_nonleaf(mod):
    copy.deepcopy(leaf(mod) * 2)


@programs
def deepcopy_leaf(mod):
    x = leaf(mod)
    x.grad = mod.ones(2)
    y = copy.deepcopy(x)
    return y, y.grad, y is x


@programs
def numpy_refuse(mod):
    leaf(mod).numpy()


@programs
def grad_is_view(mod):
    x = mod.ones(2, 3, requires_grad=True)
    (x.t() * mod.arange(6.0).reshape(3, 2)).sum().backward()
    return x.grad, x.grad.stride()


@programs
def grad_layout_channels(mod):
    x = mod.ones(2, 3).t().detach().requires_grad_()
    (x * 2).sum().backward()
    return x.stride(), x.grad.stride()


@programs
def requires_grad_arg(mod):
    return mod.zeros(2, requires_grad=True), mod.arange(3.0, requires_grad=True), mod.eye(2, requires_grad=True)


@programs
def seq_nr(mod):
    x = leaf(mod)
    a = x * 2
    b = a * 2
    return b.grad_fn._sequence_nr() > a.grad_fn._sequence_nr()


@programs
def node_eq(mod):
    x = leaf(mod)
    a = x * 2
    b = a * 3
    return b.grad_fn.next_functions[0][0] is a.grad_fn, hash(a.grad_fn) == hash(b.grad_fn.next_functions[0][0])


@programs
def accumulate_same(mod):
    x = leaf(mod)
    return (x * 2).grad_fn.next_functions[0][0] is (x * 3).grad_fn.next_functions[0][0]


@programs
def inplace_hook_order(mod):
    seen = []
    x = leaf(mod)
    y = x * 2
    y.register_hook(lambda g: seen.append(("a", g)))
    y.add_(1)
    y.register_hook(lambda g: seen.append(("b", g)))
    y.retain_grad()
    y.mul_(2)
    y.sum().backward()
    return seen, y.grad, x.grad


@programs
def unbind_hooks(mod):
    seen = []
    x = leaf(mod, 1.0, 2.0, 3.0)
    parts = x.unbind()
    parts[0].register_hook(lambda g: seen.append(g))
    parts[0].backward()
    parts[1].backward()
    return seen, x.grad


@programs
def set_data_dtype(mod):
    x = leaf(mod)
    x.data = x.data.double()
    (x * 2).sum().backward()
    return x.grad


@programs
def setattr_grad_none(mod):
    x = leaf(mod)
    x.sum().backward()
    x.grad = None
    x.sum().backward()
    return x.grad


@programs
def zero_grad_pattern(mod):
    x = leaf(mod)
    x.sum().backward()
    x.grad.zero_()
    x.sum().backward()
    x.grad.detach_()
    return x.grad


@programs
def retain_view(mod):
    x = leaf(mod)
    y = x * 2
    v = y[:1]
    v.retain_grad()
    y.mul_(3)
    (v * 2).sum().backward()
    return v.grad, x.grad


@programs
def batched_multi(mod):
    x, w = leaf(mod), leaf(mod)
    return mod.autograd.grad([x * w, x + w], [x, w], [mod.eye(2), mod.eye(2)], is_grads_batched=True)


@programs
def complex_loss(mod):
    z = mod.tensor([1 + 1j], requires_grad=True)
    (z * z).abs().sum().backward()
    return z.grad


@programs
def real_imag(mod):
    z = mod.tensor([1 + 1j, 2 - 3j], requires_grad=True)
    (z.real**2 + z.imag**3).sum().backward()
    return z.grad


@programs
def backward_on_view_real(mod):
    z = mod.tensor([1 + 1j, 2 - 3j], requires_grad=True)
    mod.view_as_real(z).pow(2).sum().backward()
    return z.grad


@programs
def sqrt_at_zero(mod):
    x = mod.tensor([0.0, 1.0], requires_grad=True)
    x.sqrt().sum().backward()
    return x.grad


@programs
def ties(mod):
    r = []
    for f in (
        lambda x: x.max(),
        lambda x: x.min(),
        lambda x: x.amax(),
        lambda x: x.amin(),
        lambda x: x.median(),
        lambda x: x.max(0)[0],
        lambda x: x.median(0)[0],
        lambda x: x.sort()[0][1],
        lambda x: x.cummax(0)[0].sum(),
        lambda x: mod.maximum(x, x.flip(0)).sum(),
        lambda x: x.clamp(1.0, 2.0).sum(),
        lambda x: x.norm(),
        lambda x: x.mode()[0],
        lambda x: x.norm(float("inf")),
        lambda x: x.aminmax()[0],
    ):
        x = mod.tensor([2.0, 2.0, 1.0, 2.0], requires_grad=True)
        f(x).sum().backward()
        r.append(x.grad)
    return r


@programs
def norm_zero(mod):
    x = mod.zeros(3, requires_grad=True)
    x.norm().backward()
    return x.grad


@programs
def pow_zero(mod):
    r = []
    for e in (0, 0.5, 1, 2, -1.0):
        x = mod.zeros(2, requires_grad=True)
        x.pow(e).sum().backward()
        r.append(x.grad)
    b = mod.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    (mod.zeros(3) ** b).sum().backward()
    r.append(b.grad)
    b = mod.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    (0**b).sum().backward()
    r.append(b.grad)
    return r


@programs
def split_inplace(mod):
    x = mod.arange(4.0).requires_grad_() * 1
    a, _b = x.split(2)
    a.mul_(2)


@programs
def chunk_nograd(mod):
    x = mod.arange(4.0)
    a, _b = x.chunk(2)
    a.mul_(2)
    return x


@programs
def leaf_view_then_nograd(mod):
    x = leaf(mod)
    with mod.no_grad():
        x[0] = 5
        x.view(-1).add_(1)
    return x, x.is_leaf


@programs
def swap(mod):
    x = leaf(mod)
    y = x * 2
    z = y.detach()
    z.mul_(5)
    return y


@programs
def saved_detach_mod(mod):
    x = leaf(mod) * 1
    y = x * x
    x.detach().mul_(2)
    y.sum().backward()


@programs
def data_no_version(mod):
    x = leaf(mod) * 1
    y = x * x
    x.data.mul_(2)
    y.sum().backward()
    return 1


@programs
def inplace_on_expanded(mod):
    x = mod.ones(1).expand(3)
    x.add_(1)


@programs
def retain_none(mod):
    x = leaf(mod)
    y = x * 2
    y.retain_grad()
    z = x * 3
    z.sum().backward()
    return y.grad


@programs
def inference_combo(mod):
    x = leaf(mod)
    with mod.inference_mode():
        y = x * 2
        z = y.clone()
        w = x.view(2)
        w2 = x.detach()
        r = [y.is_inference(), z.is_inference(), w.is_inference(), w.requires_grad, w2.is_inference()]
    try:
        w.add_(1)
        r.append("ok")
    except RuntimeError:
        r.append("err")
    return r


@programs
def inference_func(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    with mod.inference_mode():
        a = mod.ones(2)
    F.apply(a)
    x = leaf(mod)

    class G(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x, a):
            ctx.save_for_backward(a)
            return x * a

        @staticmethod
        def backward(ctx, g):
            return g, None

    G.apply(x, a)


@programs
def setstate_hooks(mod):
    x = leaf(mod)
    x.register_hook(lambda g: g * 2)
    try:
        pickle.dumps(x)
        return "ok"
    except Exception as e:
        return type(e).__name__


@programs
def thread_hooks(mod):
    res = []
    x = leaf(mod)

    def work():
        y = (x * 2).sum()
        y.backward()
        res.append(mod.is_grad_enabled())

    ts = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return res, x.grad


@programs
def backward_other_thread(mod):
    x = leaf(mod)
    y = (x * x).sum()
    t = threading.Thread(target=y.backward)
    t.start()
    t.join()
    return x.grad


@programs
def viz(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(mod)
    y = F.apply(x)
    z = y * x
    return (
        [a for a in dir(y.grad_fn) if a.startswith("_saved_")],
        sorted(a for a in dir(z.grad_fn) if a.startswith("_saved_")),
        hasattr(y.grad_fn, "variable"),
        hasattr(z.grad_fn, "saved_tensors"),
        hasattr(y.grad_fn, "saved_tensors"),
        hasattr(z.grad_fn.next_functions[1][0], "variable"),
    )


@programs
def checkpoint(mod):
    cp = importlib.import_module(mod.__name__ + ".utils.checkpoint")
    x = leaf(mod)
    w = leaf(mod)
    r = []
    for re in (True, False):
        y = cp.checkpoint(lambda a: (a * w).exp().sin(), x * 1, use_reentrant=re)
        y.sum().backward()
        r += [x.grad.clone(), w.grad.clone()]
    return r


@programs
def inplace_leaf_msgs(mod):
    out = []
    for f in (lambda: leaf(mod).add_(1), lambda: leaf(mod).view(2).add_(1), lambda: leaf(mod).__setitem__(0, 1.0)):
        try:
            f()
        except RuntimeError as e:
            out.append(str(e)[:60])
    return out


@programs
def retained_graph_partial(mod):
    x = leaf(mod)
    y = x * x
    z = y * y
    z.sum().backward()
    y.sum().backward()


@programs
def two_losses(mod):
    x = leaf(mod)
    h = x.exp()
    a = (h * 2).sum()
    b = (h * h).sum()
    a.backward()
    b.backward()


@programs
def accumulate_none_grad(mod):
    x = leaf(mod)
    y = mod.where(mod.tensor([True, False]), x, mod.zeros(2))
    y.sum().backward()
    return x.grad


@programs
def scalar_chain(mod):
    x = mod.tensor(2.0, requires_grad=True)
    y = x
    for _ in range(10):
        y = y * 1.1 + 0.5
    y.backward()
    return x.grad, y


@programs
def strided_grad(mod):
    x = mod.arange(12.0).reshape(3, 4).requires_grad_()
    (x[::2, 1::2] * mod.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)
