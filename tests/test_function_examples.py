"""Custom functions as people write them (PyTorch's notes and tutorials), compared with torch."""


import pytest
from compare import Programs, agree, leaf

programs = Programs()


@programs
def sinh_doc(mod):
    class Sinh(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            expx = mod.exp(x)
            expnegx = mod.exp(-x)
            ctx.save_for_backward(expx, expnegx)
            return (expx - expnegx) / 2, expx, expnegx

        @staticmethod
        def backward(ctx, g, ge, gn):
            expx, expnegx = ctx.saved_tensors
            gi = g * (expx + expnegx) / 2
            gi = gi + ge * expx
            gi = gi - gn * expnegx
            return gi

    x = mod.tensor([0.3, 0.5], dtype=mod.float64, requires_grad=True)
    f = lambda x: Sinh.apply(x)[0]
    (g,) = mod.autograd.grad(f(x).sum(), x, create_graph=True)
    return mod.autograd.gradcheck(f, x), mod.autograd.gradgradcheck(f, x), g.detach(), mod.autograd.grad(g.sum(), x)


@programs
def sinh_bad(mod):
    class SinhBad(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.expx = mod.exp(x)
            ctx.expnegx = mod.exp(-x)
            return (ctx.expx - ctx.expnegx) / 2

        @staticmethod
        def backward(ctx, g):
            return g * (ctx.expx + ctx.expnegx) / 2

    x = mod.tensor([0.3, 0.5], dtype=mod.float64, requires_grad=True)
    (g,) = mod.autograd.grad(SinhBad.apply(x).sum(), x, create_graph=True)
    return g.requires_grad, mod.autograd.gradgradcheck(SinhBad.apply, x, raise_exception=False)


@programs
def linear_doc(mod):
    class LinearFunction(mod.autograd.Function):
        @staticmethod
        def forward(input, weight, bias):
            output = input.mm(weight.t())
            if bias is not None:
                output += bias.unsqueeze(0).expand_as(output)
            return output

        @staticmethod
        def setup_context(ctx, inputs, output):
            input, weight, bias = inputs
            ctx.save_for_backward(input, weight, bias)

        @staticmethod
        def backward(ctx, grad_output):
            input, weight, bias = ctx.saved_tensors
            gi = gw = gb = None
            if ctx.needs_input_grad[0]:
                gi = grad_output.mm(weight)
            if ctx.needs_input_grad[1]:
                gw = grad_output.t().mm(input)
            if bias is not None and ctx.needs_input_grad[2]:
                gb = grad_output.sum(0)
            return gi, gw, gb

    x = mod.arange(6.0, dtype=mod.float64).reshape(2, 3).requires_grad_()
    w = mod.ones(2, 3, dtype=mod.float64, requires_grad=True)
    b = mod.zeros(2, dtype=mod.float64, requires_grad=True)
    o = LinearFunction.apply(x, w, b)
    o.pow(2).sum().backward()
    o2 = LinearFunction.apply(x, w, None)
    o2.sum().backward()
    return o, x.grad, w.grad, b.grad, mod.autograd.gradcheck(LinearFunction.apply, (x, w, b))


@programs
def take_sort(mod):
    class MySort(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x, dim):
            y, ind = x.sort(dim)
            inv = ind.argsort(dim)
            ctx.mark_non_differentiable(ind, inv)
            ctx.save_for_backward(ind, inv)
            ctx.dim = dim
            return y, ind, inv

        @staticmethod
        def backward(ctx, gy, _1, _2):
            _ind, inv = ctx.saved_tensors
            return gy.gather(ctx.dim, inv), None

    x = leaf(mod, 3.0, 1.0, 2.0)
    y, i, _j = MySort.apply(x, 0)
    (y * mod.arange(3.0)).sum().backward()
    return y, i, x.grad


@programs
def mod_inplace_saved_output_function(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    x = leaf(mod)
    y = F.apply(x)
    y.mul_(2)
    y.sum().backward()


@programs
def func_noinput(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, n):
            return mod.ones(n)

        @staticmethod
        def backward(ctx, g):
            return None

    y = F.apply(3)
    return y, y.requires_grad


@programs
def func_list_arg(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            ctx.n = len(xs)
            return sum(xs)

        @staticmethod
        def backward(ctx, g):
            return (g,) * ctx.n

    a, b, c = leaf(mod), leaf(mod), leaf(mod)
    F.apply(a, b, c).sum().backward()
    return a.grad, b.grad, c.grad


@programs
def func_kwonly(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x, k=2):
            return x * k

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(mod)
    F.apply(x).sum().backward()
    return x.grad


@programs
def func_return_tuple1(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x * 2,)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(mod)
    o = F.apply(x)
    o[0].sum().backward()
    return type(o).__name__, x.grad


@programs
def func_half(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.half()

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(mod)
    F.apply(x).sum().backward()
    return x.grad


@programs
def func_int_input(mod):
    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x, i):
            ctx.save_for_backward(i)
            return x[i]

        @staticmethod
        def backward(ctx, g):
            (i,) = ctx.saved_tensors
            r = mod.zeros(2)
            r[i] = g
            return r, None

    x = leaf(mod)
    y = F.apply(x, mod.tensor([1]))
    y.sum().backward()
    return x.grad, len(y.grad_fn.next_functions), y.grad_fn.needs_input_grad


@programs
def vmap_flag(mod):
    class F(mod.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, i, o):
            pass

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(mod)
    F.apply(x).sum().backward()
    return x.grad


@programs
def grad_mode_in_backward(mod):
    seen = []

    class F(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append(mod.is_grad_enabled())
            return g * 2

    x = leaf(mod)
    mod.autograd.grad(F.apply(x).sum(), x)
    mod.autograd.grad(F.apply(x).sum(), x, create_graph=True)
    with mod.no_grad():
        pass
    y = F.apply(x).sum()
    with mod.no_grad():
        y.backward()
    return seen


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)
