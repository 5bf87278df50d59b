"""Hooks of modules: forward, backward, global, and those that remove themselves."""

import pytest
from compare import agree_in_words
from layer_cases import layers

import flambeau


def model(torch):
    return layers(torch)[2]()


def dense(torch, *sizes, **options):
    return layers(torch)[0](*(sizes or (2, 3)), **options)


# -------------------------------------------------------------------------------------------------------- forward hooks
def test_forward_hooks_in_order():
    def program(torch):
        m = dense(torch)
        said = []
        note = lambda tag, answer=None: lambda mod, *args: said.append((tag, len(args))) or answer
        m.register_forward_pre_hook(note("pre 1"))
        m.register_forward_pre_hook(note("pre 0"), prepend=True)
        m.register_forward_pre_hook(lambda mod, args: args[0] * 2)
        m.register_forward_pre_hook(lambda mod, args, kwargs: ((args[0] + 1,), kwargs), with_kwargs=True)
        m.register_forward_hook(note("post 1"))
        m.register_forward_hook(note("post 0"), prepend=True)
        m.register_forward_hook(lambda mod, args, kwargs, out: out * 3, with_kwargs=True)
        handle = m.register_forward_hook(lambda mod, args, out: out + 1)
        results = [m(torch.ones(1, 2))]
        handle.remove()
        results.append(m(x=torch.ones(1, 2)) if False else m(torch.ones(1, 2)))
        with m.register_forward_hook(lambda *a: said.append("inside")):
            m(torch.ones(1, 2))
        m(torch.ones(1, 2))
        return results, said

    agree_in_words(program, tolerance=1e-6)


def test_always_called_hooks():
    def program(torch):
        m = dense(torch)
        said = []
        m.register_forward_hook(lambda mod, args, out: said.append(out is None), always_call=True)
        m.register_forward_hook(lambda mod, args, out: said.append("normal"))
        m.register_forward_hook(lambda mod, args, kwargs, out: 1 / 0, always_call=True, with_kwargs=True)
        try:
            m(torch.ones(1, 5))
        except Exception as error:
            return type(error).__name__, said

    agree_in_words(program)


def test_forward_pre_hook_must_return_a_pair():
    def program(torch):
        m = dense(torch)
        m.register_forward_pre_hook(lambda mod, args, kwargs: 3, with_kwargs=True)
        m(torch.ones(1, 2))

    agree_in_words(program)


def test_global_hooks():
    def program(torch):
        g = torch.nn.modules.module
        said = []
        note = lambda tag: lambda mod, *rest: said.append((tag, type(mod).__name__, len(rest)))
        handles = [g.register_module_forward_pre_hook(note("pre")), g.register_module_forward_hook(note("post")),
                   g.register_module_forward_hook(note("kw"), with_kwargs=True),
                   g.register_module_full_backward_hook(note("back")),
                   g.register_module_full_backward_pre_hook(note("back pre")),
                   g.register_module_parameter_registration_hook(lambda mod, name, p: said.append(("parameter", name))),
                   g.register_module_buffer_registration_hook(lambda mod, name, p: said.append(("buffer", name))),
                   g.register_module_module_registration_hook(lambda mod, name, p: said.append(("module", name)))]
        try:
            m = model(torch)
            m(torch.ones(1, 2, requires_grad=True)).sum().backward()
        finally:
            for h in handles:
                h.remove()
        count = len(said)
        m(torch.ones(1, 2))
        return said, len(said) == count, bool(g._global_forward_hooks)

    agree_in_words(program)


# ------------------------------------------------------------------------------------------------------- backward hooks
def test_full_backward_hooks():
    def program(torch):
        m = dense(torch)
        said = []
        m.register_full_backward_hook(lambda mod, gi, go: said.append((gi, go)))
        m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 10,))
        m.register_full_backward_hook(lambda mod, gi, go: said.append("first"), prepend=True)
        m.register_full_backward_pre_hook(lambda mod, go: said.append(("pre", go)) or (go[0] * 2,))
        x = torch.ones(2, 2, requires_grad=True)
        y = m(x)
        name = y.grad_fn.name()
        y.sum().backward()
        return name, said, x.grad, m.weight.grad

    agree_in_words(program, tolerance=1e-6)


@pytest.mark.parametrize("wants", [True, False])
def test_backward_hooks_with_several_arguments(wants):
    def program(torch):
        said = []

        class Pair(torch.nn.Module):
            def forward(self, a, n, b, flag=None):
                return a * b, a + n

        m = Pair()
        m.register_full_backward_hook(lambda mod, gi, go: said.append((gi, go)))
        w = torch.ones(2, requires_grad=True)
        a = torch.full((2,), 3.0, requires_grad=wants)
        p, q = m(a * 1 if wants else a, 5, w * 2)
        (p * 2 + q).sum().backward()
        return said, w.grad, a.grad

    agree_in_words(program)


def test_hooks_of_modules_whose_inputs_need_no_gradient():
    def program(torch):
        m = dense(torch)
        said = []
        m.register_full_backward_hook(lambda mod, gi, go: said.append((gi, go)))
        m(torch.ones(1, 2)).sum().backward()
        with torch.no_grad():
            m(torch.ones(1, 2))
        return said, m.weight.grad

    agree_in_words(program)


BACKWARD_ERRORS = {
    "too many": (True, lambda m: m.register_full_backward_hook(lambda mod, gi, go: (gi[0], gi[0]))),
    "no input": (False, lambda m: m.register_full_backward_hook(lambda mod, gi, go: (go[0],))),
    "pre": (True, lambda m: m.register_full_backward_pre_hook(lambda mod, go: (go[0], go[0]))),
}


@pytest.mark.parametrize("case", BACKWARD_ERRORS)
def test_backward_hook_errors(case):
    def program(torch):
        m = dense(torch)
        BACKWARD_ERRORS[case][1](m)
        m(torch.ones(2, 2, requires_grad=BACKWARD_ERRORS[case][0])).sum().backward()

    agree_in_words(program)


def test_outputs_of_hooked_modules_may_not_be_changed_in_place():
    def program(torch):
        m = dense(torch)
        m.register_full_backward_hook(lambda *a: None)
        m(torch.ones(1, 2, requires_grad=True)).add_(1)

    agree_in_words(program, text=False)


OLD_STYLE = {
    "list out": (lambda x: [x * 2], ()), "other input": (lambda x, k: x * 2, (3,)),
    "two nodes": (lambda x: (x * 2, x + 1), ()),
    "identity": (lambda x: x, ()), "deep": (lambda x: (x * 2).sin(), ()), "dict out": (lambda x: {"a": x * 2}, ()),
    "single": (lambda x: x.sin(), ())}


@pytest.mark.parametrize("case", OLD_STYLE)
def test_old_style_backward_hooks(case):
    function, more = OLD_STYLE[case]

    def program(torch):
        class Fn(torch.nn.Module):
            def forward(self, *args):
                return function(*args)

        m = Fn()
        said = []
        m.register_backward_hook(lambda mod, gi, go: said.append((len(gi), go)))
        x = torch.ones(2, requires_grad=True)
        out = m(x * 1, *more)
        first = out["a"] if isinstance(out, dict) else out[0] if isinstance(out, (list, tuple)) else out
        first.sum().backward()
        return said, x.grad

    agree_in_words(program, tolerance=1e-6)


def test_full_hooks_on_other_outputs_warn():
    def program(torch):
        class Fn(torch.nn.Module):
            def forward(self, x):
                return [x * 2]

        m = Fn()
        m.register_full_backward_hook(lambda *a: None)
        m(torch.ones(2, requires_grad=True))

    agree_in_words(program)


def test_tables_of_global_hooks_may_be_replaced():
    from collections import OrderedDict
    paths = flambeau.nn.modules.module
    paths.register_module_forward_hook(lambda *a: 3)
    assert flambeau.nn.Identity()(1) == 3
    paths._global_forward_hooks = OrderedDict()
    assert flambeau.nn.Identity()(1) == 1
    flambeau.nn.hooks.calls.clear()


def test_hooks_may_remove_themselves_and_see_which_inputs_need_gradients():
    def program(torch):
        said = []

        class Args(torch.nn.Module):
            def forward(self, a, b, c):
                said.append((a.requires_grad, b.requires_grad, c.requires_grad))
                return a.sum() + b.sum() + c.sum()

        m = Args()
        handles = []
        for _ in range(2):
            handles.append(m.register_forward_pre_hook(lambda mod, args: handles.pop(0).remove()))
        m.register_full_backward_hook(lambda mod, gi, go: said.append(gi))
        x = torch.ones(2, requires_grad=True)
        y = m(x, x.detach(), x * 2)
        y.backward(retain_graph=True)
        y.backward()
        return said, x.grad, len(m._forward_pre_hooks)

    agree_in_words(program)
