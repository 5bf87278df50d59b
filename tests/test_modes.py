"""no_grad, enable_grad, set_grad_enabled, inference_mode: compared with torch."""

import threading

import pytest
from compare import Programs, agree, leaf

import flambeau

programs = Programs()


@programs
def nesting(mod):
    seen = [mod.is_grad_enabled()]
    with mod.no_grad():
        seen.append(mod.is_grad_enabled())
        with mod.enable_grad():
            seen.append(mod.is_grad_enabled())
            with mod.set_grad_enabled(False):
                seen.append(mod.is_grad_enabled())
            seen.append(mod.is_grad_enabled())
        seen.append(mod.is_grad_enabled())
    return seen, mod.is_grad_enabled()


@programs
def set_grad_enabled_as_a_function(mod):
    mod.set_grad_enabled(False)
    first = mod.is_grad_enabled()
    mod.set_grad_enabled(True)
    return first, mod.is_grad_enabled()


@programs
def decorators(mod):
    @mod.no_grad()
    def off():
        return mod.is_grad_enabled()

    @mod.no_grad
    def off_bare():
        return mod.is_grad_enabled()

    @mod.enable_grad()
    def on():
        return mod.is_grad_enabled()

    @mod.set_grad_enabled(False)
    def maybe():
        return mod.is_grad_enabled()

    @mod.inference_mode()
    def inference():
        return mod.is_inference_mode_enabled(), mod.is_grad_enabled()

    @mod.inference_mode
    def inference_bare():
        return mod.is_inference_mode_enabled()

    with mod.no_grad():
        inside = on()
    return off(), off_bare(), inside, maybe(), inference(), inference_bare(), mod.is_grad_enabled(), off.__name__


@programs
def generators(mod):
    @mod.no_grad()
    def steps():
        got = yield mod.is_grad_enabled()
        try:
            yield mod.is_grad_enabled(), got
        except ValueError:
            yield "caught", mod.is_grad_enabled()
        return 7

    generator = steps()
    seen = [next(generator), mod.is_grad_enabled(), generator.send(3), mod.is_grad_enabled(),
            generator.throw(ValueError())]
    try:
        next(generator)
    except StopIteration as stop:
        seen.append(stop.value)
    return seen, mod.is_grad_enabled()


@programs
def exceptions(mod):
    try:
        with mod.no_grad():
            raise KeyError
    except KeyError:
        pass
    return mod.is_grad_enabled()


@programs
def reused_object(mod):
    mode = mod.no_grad()
    with mode:
        pass
    with mode:
        return mod.is_grad_enabled()


@programs
def no_grad_results_join_later(mod):
    x = leaf(mod)
    with mod.no_grad():
        y = x * 2
    z = x * y
    z.sum().backward()
    return y, x.grad


@programs
def factories_keep_requires_grad(mod):
    with mod.no_grad():
        a, b = mod.ones(2, requires_grad=True), mod.tensor([1.0], requires_grad=True)
        c = mod.ones(2).requires_grad_()
    return a, b, c


@programs
def in_place_in_no_grad(mod):
    x = leaf(mod)
    with mod.no_grad():
        x.mul_(3)
        x += 1
    return x, x._version, x.is_leaf


@programs
def view_in_no_grad_changed_outside(mod):
    x = leaf(mod) * 1
    with mod.no_grad():
        v = x[:1]
    v.mul_(2)


@programs
def view_of_plain_in_no_grad_changed_outside(mod):
    x = mod.ones(2)
    with mod.no_grad():
        v = x[:1]
    v.mul_(leaf(mod)[:1])


@programs
def inference_results(mod):
    x = leaf(mod)
    with mod.inference_mode():
        y = x * 2
        seen = y.is_inference(), y.requires_grad, y.is_leaf, x.is_inference(), mod.ones(1).is_inference()
    return seen, (y + 1).is_inference()


@programs
def inference_version(mod):
    with mod.inference_mode():
        y = mod.ones(2)
    return y._version


@programs
def inference_saved(mod):
    with mod.inference_mode():
        y = mod.ones(2)
    return leaf(mod) * y


@programs
def inference_not_saved(mod):
    with mod.inference_mode():
        y = mod.ones(2)
    x = leaf(mod)
    (x + y).sum().backward()
    return x.grad


@programs
def inference_in_place_outside(mod):
    with mod.inference_mode():
        y = mod.ones(2)
    y.add_(1)


@programs
def inference_in_place_inside(mod):
    with mod.inference_mode():
        y = mod.ones(2)
        y.add_(1)
        return y.tolist()


@programs
def normal_in_place_in_inference(mod):
    x = mod.ones(2)
    with mod.inference_mode():
        x.add_(1)
    return x, x._version, x.is_inference()


@programs
def inference_clone_is_normal(mod):
    with mod.inference_mode():
        y = mod.ones(2)
    z = y.clone()
    return z.is_inference(), (leaf(mod) * z).requires_grad


@programs
def inference_requires_grad_outside(mod):
    with mod.inference_mode():
        y = mod.ones(2)
    y.requires_grad_()


@programs
def inference_requires_grad_inside(mod):
    with mod.inference_mode():
        y = mod.ones(2, requires_grad=True)
        return y.requires_grad, (y * 2).requires_grad


@programs
def inference_view_of_a_normal_tensor(mod):
    x = mod.ones(2)
    with mod.inference_mode():
        v = x[:1]
        seen = v.is_inference(), v._is_view()
    v.add_(1)
    return seen, x


@programs
def inference_view_of_a_recorded_tensor_changed_outside(mod):
    x = leaf(mod) * 1
    with mod.inference_mode():
        v = x[:1]
    v.add_(1)


@programs
def inference_mode_off_inside(mod):
    with mod.inference_mode():
        with mod.inference_mode(False):
            y = leaf(mod) * 2
            return y.requires_grad, y.is_inference(), mod.is_inference_mode_enabled(), mod.is_grad_enabled()


@programs
def enable_grad_inside_inference(mod):
    x = leaf(mod)
    with mod.inference_mode():
        with mod.enable_grad():
            return (x * 2).requires_grad, mod.is_grad_enabled()


@programs
def backward_does_not_change_the_mode(mod):
    x = leaf(mod)
    (x * x).sum().backward()
    with mod.no_grad():
        y = x * 2
    return mod.is_grad_enabled(), y.requires_grad


@programs
def grad_mode_module(mod):
    import importlib
    module = importlib.import_module(f"{mod.__name__}.autograd.grad_mode")
    return [hasattr(module, n) for n in ("no_grad", "enable_grad", "set_grad_enabled", "inference_mode")]


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)


def test_modes_are_the_threads_own():
    seen = []
    with flambeau.no_grad():
        thread = threading.Thread(target=lambda: seen.append(flambeau.is_grad_enabled()))
        thread.start()
        thread.join()
        seen.append(flambeau.is_grad_enabled())
    assert seen == [True, False]
