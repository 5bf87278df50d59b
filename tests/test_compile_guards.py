"""What a program takes for granted, changed one thing at a time."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from compiled import agree, programs, same_seen, seen, way, why

import flambeau as torch
from flambeau import nn, optim

SCALE = 2.0
SETTINGS = {"scale": 1.0, "names": ["a", "b"]}
WEIGHT = torch.ones(3)
KEPT: list = []


class Config:
    scale = 1.0
    nested = None


CONFIG = Config()


def changing(function, change, back=None, args=lambda: (torch.arange(3.0),), at_most=2, goes="skip"):
    """Calls a compiled function, changes something, calls it again; eager is asked each time."""
    fn = torch.compile(function)

    def check():
        for _ in range(4):  # a capture, a call with every check, and repetitions
            a, b = args(), args()
            same_seen(seen(function(*a)), seen(fn(*b)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check()
        change()
        try:
            check()
        finally:
            if back is not None:
                back()
        check()
    assert way(fn) == goes and programs(fn) <= at_most, why(fn)
    return fn


def put(owner, name, value):
    return lambda: owner.__setitem__(name, value) if isinstance(owner, dict) else setattr(owner, name, value)


def test_global_number():
    changing(lambda x: x * SCALE, put(globals(), "SCALE", 3.0), put(globals(), "SCALE", 2.0))


def test_global_number_of_another_type():
    changing(lambda x: x.long() * SCALE, put(globals(), "SCALE", 2), put(globals(), "SCALE", 2.0))


def test_global_dict_and_list():
    def f(x):
        return x * SETTINGS["scale"] + len(SETTINGS["names"])
    changing(f, put(SETTINGS, "scale", 4.0), put(SETTINGS, "scale", 1.0))
    changing(f, lambda: SETTINGS["names"].append("c"), lambda: SETTINGS["names"].pop())


def test_global_tensor():
    changing(lambda x: x * WEIGHT, put(globals(), "WEIGHT", torch.full((3,), 5.0)), put(globals(), "WEIGHT", WEIGHT))
    changing(lambda x: x * WEIGHT, lambda: WEIGHT.mul_(2), lambda: WEIGHT.div_(2), at_most=1)


def test_global_function():
    changing(lambda x: helper(x), put(globals(), "helper", lambda x: x - 1), put(globals(), "helper", helper))


def helper(x):
    return x + SCALE


def test_global_read_by_a_helper():
    changing(lambda x: helper(x), put(globals(), "SCALE", 7.0), put(globals(), "SCALE", 2.0))


def test_closure_variable():
    factor = 2.0

    def change(to):
        nonlocal factor
        factor = to
    changing(lambda x: x * factor, lambda: change(3.0), lambda: change(2.0))


def test_closure_of_a_nested_function():
    factor = 2.0

    def inner(x):
        return x * factor

    def change(to):
        nonlocal factor
        factor = to
    changing(lambda x: inner(x) + 1, lambda: change(3.0), lambda: change(2.0))
    table = {"f": inner}
    changing(lambda x: table["f"](x) + 1, lambda: change(3.0), lambda: change(2.0))


def test_closure_list_of_tensors():
    tensors = [torch.ones(3), torch.ones(3)]
    changing(lambda x: sum(tensors) + x, lambda: tensors.append(torch.ones(3)), lambda: tensors.pop())
    changing(lambda x: sum(tensors) + x, put_item(tensors, 0, torch.zeros(3)), put_item(tensors, 0, torch.ones(3)), at_most=3)


def put_item(items, at, value):
    return lambda: items.__setitem__(at, value)


def test_a_long_list_in_a_closure():
    numbers = list(range(100))
    changing(lambda x: x + sum(numbers), put_item(numbers, 50, -1000), put_item(numbers, 50, 50))


def test_numpy_array_and_set_changed_in_place():
    array, some = np.ones(3), {1, 2}
    changing(lambda x: x * float(array.sum()), put_item(array, 0, 10.0), put_item(array, 0, 1.0), goes="follow")
    changing(lambda x: x * len(some), lambda: some.add(3), lambda: some.discard(3))
    changing(lambda x, a, s: x * float(a.sum()) + len(s), put_item(array, 0, 10.0), lambda: some.add(4),
             lambda: (torch.ones(2), array, some), goes="follow")


def test_attribute_of_an_object():
    changing(lambda x: x * CONFIG.scale, put(CONFIG, "scale", 3.0), put(CONFIG, "scale", 1.0),
             at_most=3)  # its class's number, and its own ones


def test_attribute_of_an_attribute():
    CONFIG.nested = Config()
    changing(lambda x: x * CONFIG.nested.scale, put(CONFIG.nested, "scale", 3.0), put(CONFIG.nested, "scale", 1.0),
             at_most=3)


def test_attribute_of_a_class():
    changing(lambda x: x * Config.scale, put(Config, "scale", 3.0), put(Config, "scale", 1.0))


def test_attribute_of_an_object_in_a_closure():
    config = Config()
    changing(lambda x: x * config.scale, put(config, "scale", 3.0), put(config, "scale", 1.0), at_most=3)


def test_attribute_of_an_argument():
    config = Config()
    changing(lambda x, c: x * c.scale, put(config, "scale", 3.0), put(config, "scale", 1.0), lambda: (torch.ones(3), config),
             goes="follow")  # a program would have to keep the object alive


def test_attribute_read_in_a_method():
    class Reader:
        def __init__(self):
            self.scale, self.deep = 2.0, Config()

        def __call__(self, x):
            return self.read(x) * self.deep.scale

        def read(self, x):
            return x * self.scale
    reader = Reader()
    changing(lambda x: reader(x), put(reader, "scale", 3.0), put(reader, "scale", 2.0))
    changing(lambda x: reader(x), put(reader.deep, "scale", 3.0), put(reader.deep, "scale", 1.0), at_most=3)
    changing(reader, put(reader, "scale", 3.0), put(reader, "scale", 2.0))


def test_default_argument():
    def f(x, by=2.0):
        return x * by

    def default(to):
        f.__defaults__ = (to,)
    changing(lambda x: f(x), lambda: default(3.0), lambda: default(2.0))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.options = 2.0, {"bias": 0.5}
        self.part = nn.Linear(3, 3)
        self.register_buffer("shift", torch.zeros(3))

    def forward(self, x):
        return self.part(x) * self.scale + self.options["bias"] + self.shift


def module_case(change, back, at_most=2, goes="skip"):
    torch.manual_seed(0)
    net = Scaled()
    changing(lambda x: net(x), lambda: change(net), lambda: back(net), at_most=at_most, goes=goes)
    net = Scaled()
    model = torch.compile(net)
    x = torch.arange(3.0)
    for step in (lambda n: None, change, back):
        step(net)
        for _ in range(2):
            same_seen(seen(net(x)), seen(model(x)))


def test_module_attribute():
    module_case(lambda n: setattr(n, "scale", 5.0), lambda n: setattr(n, "scale", 2.0))


def test_module_attribute_in_a_dict():
    module_case(lambda n: n.options.update(bias=5.0), lambda n: n.options.update(bias=0.5))


def test_submodule_replaced():
    module_case(lambda n: setattr(n, "part", nn.Linear(3, 3, bias=False)), lambda n: setattr(n, "part", nn.Linear(3, 3)), 4)


def test_parameter_replaced():
    module_case(lambda n: setattr(n.part, "weight", nn.Parameter(torch.eye(3) * 4)), lambda n: setattr(n.part, "bias", None), 4)


def test_buffer_replaced():
    module_case(lambda n: setattr(n, "shift", torch.ones(3)), lambda n: setattr(n, "shift", torch.zeros(3)), 4)


def test_forward_replaced_on_the_instance():
    module_case(lambda n: setattr(n, "forward", lambda x: x * 100), lambda n: delattr(n, "forward"))


def test_hooks_added_and_removed():
    handles = []
    module_case(lambda n: handles.append(n.part.register_forward_hook(lambda m, a, o: o * 2)), lambda n: handles.pop().remove(),
                goes="skip and follow")
    module_case(lambda n: handles.append(n.part.register_forward_pre_hook(lambda m, a: (a[0] * 2,))),
                lambda n: handles.pop().remove(), goes="skip and follow")


def test_global_module_hooks():
    handles = []
    module_case(lambda n: handles.append(nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 2)),
                lambda n: handles.pop().remove(), 4, "skip and follow")


def test_module_list_grows():
    layers = nn.ModuleList([nn.Linear(3, 3)])

    def f(x):
        for layer in layers:
            x = layer(x)
        return x
    changing(f, lambda: layers.append(nn.Tanh()), lambda: layers.pop(-1))


def test_submodule_of_a_sequential_replaced():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    changing(lambda x: net(x), put_item(net, 1, nn.Tanh()), put_item(net, 1, nn.Sigmoid()), at_most=3)


def test_parametrization_added():
    from flambeau.nn.utils import parametrize

    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).t()
    net = nn.Linear(3, 3)
    changing(lambda x: net(x), lambda: parametrize.register_parametrization(net, "weight", Symmetric()),
             lambda: parametrize.remove_parametrizations(net, "weight"))


def test_training_flag():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    x = torch.arange(3.0)
    fn = torch.compile(lambda x: net(x))

    def check():
        torch.manual_seed(1)
        expected = seen(net(x))
        torch.manual_seed(1)
        same_seen(expected, seen(fn(x)))
    for flag in (True, False, True, False, True):
        net.train(flag)
        check()
        check()
    net[1].training = False   # the flag of one layer only
    check()
    net[1].p, net[1].training = 0.1, True
    check()
    check()


def test_requires_grad_of_a_parameter():
    net = nn.Linear(3, 3)
    fn = torch.compile(lambda x: net(x).sum())
    for flag in (True, False, True, True, False):
        net.weight.requires_grad_(flag)
        net.zero_grad()
        out = fn(torch.arange(3.0))
        out.backward()
        assert (net.weight.grad is not None) is flag and net.bias.grad is not None
    net.requires_grad_(False)
    assert not fn(torch.arange(3.0)).requires_grad


def test_requires_grad_inside_a_step():
    def build():
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        opt = optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            opt.zero_grad()
            loss = net(x).pow(2).sum()
            loss.backward()
            opt.step()
            return loss
        return step, net, opt

    def freeze(flag):
        def call(net, opt):
            net[0].requires_grad_(flag)
            return (torch.arange(3.0),)
        return call
    agree(build, [freeze(True)] * 3 + [freeze(False)] * 2 + [freeze(True)] * 2 + [freeze(False)])


def test_requires_grad_of_an_argument():
    fn = torch.compile(lambda x: x * 2)
    for flag in (True, False) * 3:
        assert fn(torch.ones(2, requires_grad=flag)).requires_grad is flag


def test_grad_mode():
    w = torch.ones(3, requires_grad=True)
    fn = torch.compile(lambda x: x * w)
    for _ in range(3):
        assert fn(torch.ones(3)).requires_grad
        with torch.no_grad():
            assert not fn(torch.ones(3)).requires_grad
        with torch.inference_mode():
            assert fn(torch.ones(3)).is_inference()


def test_grad_mode_changed_by_the_call():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2
    fn = torch.compile(f)
    try:
        for _ in range(3):
            torch.set_grad_enabled(True)
            fn(torch.ones(2))
            assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def test_dtype_shape_and_strides_of_arguments():
    fn = torch.compile(lambda x: x * 2 + x.sum(-1, keepdim=True))
    base = torch.arange(24).view(4, 6)
    for _ in range(2):
        for x in (base.float(), base.double(), base, base.float().t(), base.float()[:, ::2], base.float()[1:3], base.half(),
                  base.int(), base > 3, base.float()[0], base.float().expand(2, 4, 6)):
            same_seen(seen(x * 2 + x.sum(-1, keepdim=True)), seen(fn(x)))


def test_default_dtype():
    fn = torch.compile(lambda x: torch.ones(3) * x.long() / 2)
    x = torch.arange(3)
    try:
        for dtype in (torch.float32, torch.float64, torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            assert fn(x).dtype == dtype
            assert fn(x).dtype == dtype
    finally:
        torch.set_default_dtype(torch.float32)


def test_python_numbers_as_arguments():
    def f(x, n, s, flag):
        return x * n if flag else x + len(s)
    fn = torch.compile(f)
    x = torch.arange(3)
    for args in ((1, "a", True), (2, "a", True), (2.0, "a", True), (True, "a", True), (1, "bb", False), (1, "c", False),
                 (1.0, "a", True)):
        for _ in range(2):
            same_seen(seen(f(x, *args)), seen(fn(x, *args)))


def test_nan_and_minus_zero_as_arguments():
    fn = torch.compile(lambda x, n: x * n)
    x = torch.ones(2)
    for _ in range(2):
        for n in (0.0, -0.0, float("nan"), float("inf")):
            a, b = fn(x, n), x * n
            assert repr(a.tolist()) == repr(b.tolist())


def test_dict_keys_and_lengths_of_arguments():
    def f(d):
        return sum(v * (i + 1) for i, v in enumerate(d.values() if isinstance(d, dict) else d))
    fn = torch.compile(f)
    a, b = torch.ones(2), torch.full((2,), 3.0)
    for _ in range(2):
        for d in ({"a": a, "b": b}, {"b": b, "a": a}, {"a": a}, [a, b], (a, b), (b, a), [a, b, a]):
            same_seen(seen(f(d)), seen(fn(d)))


def test_environment_of_the_same_code_called_from_two_closures():
    def make(k):
        return lambda x: x * k
    f, g = torch.compile(make(2.0)), torch.compile(make(3.0))
    for _ in range(3):
        assert f(torch.ones(1)).item() == 2 and g(torch.ones(1)).item() == 3


def test_a_function_defined_inside_the_call():
    SCALES = [1.0, 2.0]

    def f(x):
        def inner(y):
            return y * SCALES[0]
        return inner(x) + SCALES[1]
    changing(f, put_item(SCALES, 0, 5.0), put_item(SCALES, 0, 1.0))


@pytest.mark.parametrize("key,value", [("nesterov", True), ("maximize", True), ("weight_decay", 0.3), ("dampening", 0.0)])
def test_flags_of_sgd(key, value):
    optimizer_case(lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.0 if key == "nesterov" else 0.1), key, value)


@pytest.mark.parametrize("key,value", [("amsgrad", True), ("maximize", True), ("weight_decay", 0.3)])
def test_flags_of_adam(key, value):
    def late(net, opt):
        for state in opt.state.values():
            state.setdefault("max_exp_avg_sq", torch.zeros_like(state["exp_avg_sq"]))
    optimizer_case(lambda p: optim.Adam(p, lr=0.1), key, value, late if key == "amsgrad" else None)


def optimizer_case(make, key, value, prepare=None):
    def build():
        net = nn.Linear(3, 2)
        opt = make(net.parameters())

        def step(x):
            opt.zero_grad()
            loss = net(x).pow(2).sum()
            loss.backward()
            opt.step()
            return loss
        return step, net, opt

    def change(to):
        def call(net, opt):
            if prepare is not None:
                prepare(net, opt)
            opt.param_groups[0][key] = to
            return (torch.arange(3.0),)
        return call
    old = make([torch.ones(1, requires_grad=True)]).param_groups[0][key]
    x = (torch.arange(3.0),)
    agree(build, [x, x, x, change(value), x, x, change(old), x])


def test_add_param_group_and_new_parameters_in_a_group():
    def build():
        net, extra = nn.Linear(3, 2), nn.Linear(3, 2)
        opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            opt.zero_grad()
            loss = (net(x) + extra(x)).pow(2).sum()
            loss.backward()
            opt.step()
            return loss
        return step, net, extra, opt

    def add(net, extra, opt):
        opt.add_param_group({"params": [extra.weight], "lr": 0.01})
        return (torch.arange(3.0) / 4,)

    def more(net, extra, opt):
        opt.param_groups[1]["params"].append(extra.bias)
        return (torch.arange(3.0) / 4,)
    x = (torch.arange(3.0) / 4,)
    agree(build, [x, x, x, add, x, x, more, x, x])


def test_optimizer_state_changed_by_hand():
    def build():
        net = nn.Linear(3, 2)
        opt = optim.Adam(net.parameters(), lr=0.1)

        def step(x):
            opt.zero_grad()
            loss = net(x).pow(2).sum()
            loss.backward()
            opt.step()
            return loss
        return step, net, opt

    def halve(net, opt):
        for s in opt.state.values():
            s["exp_avg"].mul_(0.5)
        return (torch.arange(3.0),)

    def fresh(net, opt):
        for s in opt.state.values():
            s["exp_avg"] = torch.ones_like(s["exp_avg"])
            s["step"] = torch.tensor(10.0)
        return (torch.arange(3.0),)

    def clear(net, opt):
        opt.state.clear()
        return (torch.arange(3.0),)
    x = (torch.arange(3.0),)
    agree(build, [x, x, x, halve, x, fresh, x, x, clear, x, x, x])


def test_step_hooks_of_an_optimizer():
    def build():
        net = nn.Linear(3, 2)
        opt = optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            opt.zero_grad()
            net(x).pow(2).sum().backward()
            opt.step()
            return net.weight.sum()
        return step, net, opt

    def hook(net, opt):
        def halve(*_):
            with torch.no_grad():
                net.weight.mul_(0.5)
        opt.register_step_post_hook(halve)
        return (torch.arange(3.0),)
    x = (torch.arange(3.0),)
    agree(build, [x, x, x, hook, x, x])


def test_gradients_there_or_not():
    """The presence of a gradient at the start decides whether it is added to."""
    def build():
        w = torch.ones(3, requires_grad=True)

        def f(x):
            (x * w).sum().backward()
            return w.grad * 2
        return f, w

    def without(w):
        w.grad = None
        return (torch.arange(3.0),)

    def other(w):
        w.grad = torch.full((3,), 10.0)
        return (torch.arange(3.0),)
    x = (torch.arange(3.0),)
    agree(build, [without, x, x, without, other, x, without, without, x], 2)


def test_threads_setting():
    fn = torch.compile(lambda x: (x * 2).sum(0))
    x = torch.ones(300, 300)
    before = torch.get_num_threads()
    try:
        for n in (1, 2, 1):
            torch.set_num_threads(n)
            assert fn(x)[0].item() == 600
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("ask, other", [
    (lambda t: t.float() is t, lambda: torch.ones(4).double()), (lambda t: t.contiguous() is t, lambda: torch.ones(8)[::2]),
    (lambda t: t.view(-1, 2).shape[0] > 2, lambda: torch.ones(8)), (lambda t: (t * 2).numel() > 4, lambda: torch.ones(8)),
    (lambda t: (t + 1).dtype is torch.float32, lambda: torch.ones(4).half()), (lambda t: (t * 2).requires_grad, None),
    (lambda t: (t * 2).is_leaf, None), (lambda t: t.grad is None, None)])
def test_tensors_that_only_decide_what_the_python_does(ask, other):
    """They are not part of the program."""
    tensor, values = torch.ones(4), torch.ones(4)
    changing(lambda x: x * (2 if ask(tensor) else 3),
             lambda: tensor.requires_grad_() if other is None else put_data(tensor, other()),
             lambda: tensor.requires_grad_(False) if other is None else put_data(tensor, values))


def put_data(tensor, data):
    tensor.data = data
