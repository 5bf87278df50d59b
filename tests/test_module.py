"""nn.Module: registration, attributes, walking, conversion, printing, copying; against PyTorch."""

import copy
import pickle
import sys

import pytest
from compare import agree_in_words
from layer_cases import dense, layers, model

import flambeau

# --------------------------------------------------------------------------------------------- registration, attributes
REGISTRATION = {
    f"{kind} {name!r}": lambda torch, kind=kind, name=name: getattr(dense(torch), kind)(name, {
        "register_buffer": torch.ones(1), "register_parameter": torch.nn.Parameter(torch.ones(1)),
        "add_module": torch.nn.Identity()}[kind])
    for kind in ("register_buffer", "register_parameter", "add_module") for name in ("ok", "a.b", "", "weight", 3,
                                                                                     "forward")
}
REGISTRATION |= {
    "buffer of int": lambda torch: dense(torch).register_buffer("x", 3),
    "parameter of tensor": lambda torch: dense(torch).register_parameter("x", torch.ones(1)),
    "parameter of non-leaf": lambda torch: dense(torch).register_parameter("x", torch.nn.Parameter(torch.ones(1)) * 2),
    "module of int": lambda torch: dense(torch).add_module("x", 3),
    "module of function": lambda torch: dense(torch).register_module("x", len),
    "set parameter to tensor": lambda torch: setattr(dense(torch), "weight", torch.ones(1)),
    "set parameter to text": lambda torch: setattr(dense(torch), "weight", "s"),
    "set buffer to text": lambda torch: setattr(layers(torch)[1](), "factor", "s"),
    "set child to text": lambda torch: setattr(model(torch), "first", "s"),
    "delete what is not there": lambda torch: delattr(dense(torch), "zzz"),
    "read what is not there": lambda torch: dense(torch).zzz,
    "no forward": lambda torch: torch.nn.Module()(1),
    "init with positional": lambda torch: torch.nn.Module(3),
    "init with keyword": lambda torch: torch.nn.Module(a=3),
    "train(3)": lambda torch: dense(torch).train(3),
    "both kinds of backward hook": lambda torch: (lambda m: (m.register_full_backward_hook(print),
                                                             m.register_backward_hook(print)))(dense(torch)),
    "both kinds, other order": lambda torch: (lambda m: (m.register_backward_hook(print),
                                                         m.register_full_backward_hook(print)))(dense(torch)),
}


@pytest.mark.parametrize("case", REGISTRATION)
def test_registration_is_refused_with_pytorchs_words(case):
    agree_in_words(REGISTRATION[case])


@pytest.mark.parametrize("what", ["p", "m", "b", "register_buffer", "register_parameter"])
def test_assignment_before_init(what):
    def program(torch):
        class Hasty(torch.nn.Module):
            def __init__(self):
                value = {"p": torch.nn.Parameter(torch.ones(1)), "m": torch.nn.Identity(),
                         "b": torch.nn.Buffer(torch.ones(1))}
                if what in value:
                    self.x = value[what]
                else:
                    getattr(self, what)("x", value["p"])

        Hasty()

    agree_in_words(program)


def test_call_before_init_names_the_class():
    class Hasty(flambeau.nn.Module):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match="Hasty"):
        Hasty()(1)
    with pytest.raises(AttributeError, match="'Hasty' object has no attribute 'foo'"):
        Hasty().foo


def test_a_name_moves_between_the_tables():
    def program(torch):
        m = dense(torch)
        seen = []
        values = [torch.nn.Parameter(torch.ones(1)), torch.nn.Buffer(torch.ones(1)), torch.nn.Identity(),
                  torch.nn.Buffer(torch.ones(2), persistent=False), torch.nn.Parameter(torch.zeros(1)), None]
        m.x = 3
        for value in values:
            m.x = value
            seen.append([list(m._parameters), list(m._buffers), list(m._modules), sorted(m._non_persistent_buffers_set),
                         "x" in m.__dict__, list(m.state_dict())])
        m.x = None
        del m.x
        return seen, hasattr(m, "x"), list(m._parameters)

    agree_in_words(program)


def test_buffers_keep_their_persistence_and_properties_work():
    def program(torch):
        m = layers(torch)[1]()
        m.factor = torch.zeros(2)
        m.scratch = torch.ones(2)
        m.nothing = torch.ones(1)

        class WithProperty(torch.nn.Module):
            @property
            def doubled(self):
                return self.value * 2

            @doubled.setter
            def doubled(self, x):
                self.value = x / 2

        p = WithProperty()
        p.doubled = 6
        return dict(m.state_dict()), [n for n, _ in m.named_buffers()], p.value, p.doubled

    agree_in_words(program)


def test_an_attribute_error_in_a_property_names_the_inner_attribute():
    def program(torch):
        class Broken(torch.nn.Module):
            @property
            def thing(self):
                return self.missing

        return Broken().thing

    agree_in_words(program, text=False)


def test_instance_dictionary_and_dir_are_pytorchs():
    def program(torch):
        m = torch.nn.Sequential(torch.nn.Identity(), dense(torch))
        return list(torch.nn.Module().__dict__), "0" in dir(m), {"weight", "bias", "inputs",
                                                                 "forward"} <= set(dir(m[1]))

    agree_in_words(program)


# ----------------------------------------------------------------------------------------------------- finding, walking
@pytest.mark.parametrize("target",
                         ["", "first", "nope", "first.x", "first.weight", "alpha", "scale.factor", "scale.nothing"])
@pytest.mark.parametrize("method", ["get_submodule", "get_parameter", "get_buffer"])
def test_lookup_by_path(method, target):
    agree_in_words(lambda torch: getattr(model(torch), method)(target))


@pytest.mark.parametrize("target, strict",
                         [("", False), ("first", False), ("first", True), ("nope", False), ("nope", True),
                                            ("x.y", False), ("first.weight", False), ("first.inner", False)])
def test_set_submodule(target, strict):
    def program(torch):
        m = model(torch)
        m.set_submodule(target, torch.nn.Identity(), strict)
        return m

    agree_in_words(program)
    agree_in_words(lambda torch: model(torch).set_submodule("first", 3))


def test_walking():
    def program(torch):
        m = model(torch)
        m.again = m.first
        m.second.tied = m.first.weight
        m.empty = None
        names = lambda pairs: [(n, type(v).__name__) for n, v in pairs]
        return [names(m.named_modules()), names(m.named_modules(prefix="p")),
                names(m.named_modules(remove_duplicate=False)),
                names(m.named_children()), names(m.named_parameters()),
                names(m.named_parameters(prefix="q", recurse=False)),
                names(m.named_parameters(remove_duplicate=False)), names(m.named_buffers()), len(list(m.children())),
                len(list(m.modules())), len(list(m.parameters())), len(list(m.parameters(recurse=False))),
                len(list(m.buffers())), list(m.state_dict())]

    agree_in_words(program)


def test_apply_train_requires_grad_zero_grad():
    def program(torch):
        m = model(torch)
        order = []
        assert m.apply(lambda x: order.append(type(x).__name__)) is m
        assert m.eval() is m and m.train() is m
        m.eval()
        modes = [x.training for x in m.modules()]
        m(torch.ones(2, 2)).sum().backward()
        before = [p.grad.sum() for p in m.parameters()]
        m.zero_grad(set_to_none=False)
        zeroed = [p.grad for p in m.parameters()]
        m.zero_grad()
        m.requires_grad_(False)
        return order, modes, before, zeroed, [p.grad for p in m.parameters()], [p.requires_grad for p in m.parameters()]

    agree_in_words(program, tolerance=1e-5)


# ----------------------------------------------------------------------------------------------------------- conversion
@pytest.mark.parametrize("convert", [
    lambda torch, m: m.double(), lambda torch, m: m.half(), lambda torch, m: m.bfloat16(), lambda torch, m: m.float(),
    lambda torch, m: m.to(torch.float64), lambda torch, m: m.to("cpu", torch.float64), lambda torch,
    m: m.to(dtype=torch.float16),
    lambda torch, m: m.to(torch.ones(1, dtype=torch.float64)), lambda torch, m: m.to(), lambda torch,
    m: m.to("cpu", non_blocking=True),
    lambda torch, m: m.to(torch.device("cpu")), lambda torch, m: m.type(torch.float64), lambda torch, m: m.cpu(),
    lambda torch, m: m.to(torch.int32), lambda torch, m: m.to(memory_format=torch.channels_last)])
def test_conversion(convert):
    def program(torch):
        m = model(torch)
        m.register_buffer("count", torch.tensor(3))
        m(torch.ones(2, 2)).sum().backward()
        ids = [id(p) for p in m.parameters()]
        assert convert(torch, m) is m
        return [str(p.dtype) for p in m.parameters()], [str(p.grad.dtype) for p in m.parameters()], [
            str(b.dtype) for b in m.buffers()], ids == [id(p) for p in m.parameters()], m.alpha.is_leaf

    agree_in_words(program, warned=False)


def test_conversion_errors():
    agree_in_words(lambda torch: dense(torch).to("nonsense"), text=False)
    agree_in_words(lambda torch: dense(torch).to([1]), text=False)
    agree_in_words(lambda torch: dense(torch, 2, 3, device="meta").to("cpu"))


def test_meta_modules():
    def program(torch):
        m = dense(torch, 2, 3, device="meta")
        m.to_empty(device="cpu")
        loaded = dense(torch, 2, 3, device="meta")
        loaded.load_state_dict(dense(torch).state_dict(), assign=True)
        w = m.weight
        return w.shape == (3, 2), str(w.device), w.is_leaf, w.requires_grad, dict(loaded.state_dict())

    agree_in_words(program)
    agree_in_words(lambda torch: str(dense(torch, 2, 3, device="meta").load_state_dict(dense(torch).state_dict())))


def test_converted_parameters_still_train():
    m = dense(flambeau)
    w = m.weight
    m.double()
    m(flambeau.ones(1, 2, dtype=flambeau.float64)).sum().backward()
    assert m.weight is w and w.grad.dtype is flambeau.float64 and w.grad.tolist() == [[1.0, 1.0]] * 3


# ---------------------------------------------------------------------------------------------- printing, copies, files
def test_repr():
    def program(torch):
        m = model(torch)

        class Lines(torch.nn.Module):
            def extra_repr(self):
                return "one\ntwo"

        m.lines = Lines()
        m.nested = torch.nn.Sequential(torch.nn.ModuleList([dense(torch), dense(torch), torch.nn.Identity()]), Lines())
        m.nothing = None
        m.first.sub = torch.nn.Identity()
        return m, torch.nn.Module(), torch.nn.Identity(), Lines(), str(m)

    agree_in_words(program)


class Picklable(flambeau.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = flambeau.nn.Parameter(flambeau.arange(3.0))
        self.frozen = flambeau.nn.Parameter(flambeau.ones(2), requires_grad=False)
        self.tied = self.weight
        self.register_buffer("seen", flambeau.zeros(1), persistent=False)
        self.weight.note = "kept"

    def forward(self, x):
        return x * self.weight


@pytest.mark.parametrize("way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent_and_complete(way):
    m = Picklable()
    m.eval()
    m.register_forward_hook(forward_hook)
    m(flambeau.ones(3)).sum().backward()
    twin = way(m)
    assert twin.tied is twin.weight and twin.weight is not m.weight
    assert twin.weight.is_leaf and not twin.frozen.requires_grad
    assert isinstance(twin.weight, flambeau.nn.Parameter) and not twin.training
    assert hasattr(twin.weight, "note") == (way is not copy.deepcopy)  # PyTorch's deepcopy leaves attributes behind
    assert list(twin.state_dict()) == list(m.state_dict()) and "seen" in twin._non_persistent_buffers_set
    with flambeau.no_grad():
        twin.weight.zero_()
    assert m.weight.tolist() == [0.0, 1.0, 2.0]
    assert twin(flambeau.ones(3)).tolist() == [1.0, 1.0, 1.0]


def forward_hook(module, args, output):
    return output + 1


def test_deepcopy_of_a_parameter_with_grad():
    def program(torch):
        p = torch.nn.Parameter(torch.ones(2))
        (p * 2).sum().backward()
        q = copy.deepcopy(p)
        return q, q.grad, q is p, copy.deepcopy(torch.nn.Parameter(torch.ones(2), requires_grad=False))

    agree_in_words(program)


def test_old_pickles_get_the_tables_they_lack():
    m = flambeau.nn.Module.__new__(flambeau.nn.Module)
    m.__setstate__({"training": True, "_parameters": {}, "_buffers": {}, "_modules": {}, "_forward_hooks": {},
                    "_forward_pre_hooks": {}, "_backward_hooks": {}})
    assert m._backward_pre_hooks == {} and m.state_dict() == {}


# -------------------------------------------------------------------------------------------------------- odds and ends
def test_module_paths_that_programs_import():
    from flambeau.nn.modules.container import ModuleList, Sequential
    from flambeau.nn.modules.module import Module, _addindent, register_module_forward_hook  # noqa: F401

    from flambeau.nn.modules import utils
    from flambeau.nn.parameter import Parameter
    nn = flambeau.nn
    assert Module is nn.Module and Sequential is nn.Sequential and ModuleList is nn.ModuleList
    assert Parameter is flambeau.nn.Parameter and flambeau.nn.modules.Module is Module
    assert flambeau.nn.modules.linear.Identity is flambeau.nn.Identity
    assert utils._pair(3) == (3, 3) and utils._triple((1, 2, 3)) == (1, 2, 3) and utils._reverse_repeat_tuple((1, 2),
                                                                                                              2) == (
        2, 2, 1, 1)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        flambeau.nn.modules.conv.nonsense
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        flambeau.nn.Nonsense


def test_consume_prefix():
    def program(torch):
        from importlib import import_module
        consume = import_module(torch.__name__ + ".nn.modules.utils").consume_prefix_in_state_dict_if_present
        wrapped = torch.nn.Module()
        wrapped.module = model(torch)
        d = wrapped.state_dict()
        consume(d, "module.")
        return list(d), dict(d._metadata)

    agree_in_words(program)


def test_factory_kwargs():
    for case in (None, {}, {"device": "cpu"}, {"factory_kwargs": {"dtype": 1}, "device": "x"}, {"bad": 1},
                 {"device": 1, "factory_kwargs": {"device": 2}}):
        agree_in_words(lambda torch, case=case: torch.nn.factory_kwargs(case), text=False)


def test_call_super_init():
    def program(torch):
        class Other:
            def __init__(self, x):
                self.x = x

        class Both(torch.nn.Module, Other):
            call_super_init = True

            def __init__(self, x):
                super().__init__(x)

        return Both(3).x

    agree_in_words(program)


def test_a_call_without_hooks_is_lean():
    """Module.__call__ does nothing but look at its hooks and call forward."""
    class Plain(flambeau.nn.Module):
        def forward(self, x):
            return x

    m, steps, called = Plain(), [], []

    def trace(frame, event, arg):
        frame.f_trace_opcodes = True
        (called if event == "call" else steps).append((frame.f_code.co_name, event))
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        m(1)
    finally:
        sys.settrace(old)
    assert [name for name, _ in called] == ["__call__", "forward"]
    if sys.version_info[:2] == (3, 12):  # which tells nothing of instructions to a frame that has begun
        assert 1 < steps.count(("__call__", "line")) < 15
    else:
        assert 10 < steps.count(("__call__", "opcode")) < 60


def test_importing_nn_leaves_layers_for_later():
    import subprocess
    code = ("import sys, flambeau.nn; sys.exit(any(m in sys.modules for m in "
            "('flambeau.nn.functional', 'flambeau.nn.conv', 'flambeau.nn.utils.prune')))")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_register_buffer_of_ones_own():
    def program(torch, persistent=True):
        class Own(torch.nn.Module):
            def register_buffer(self, name, value):
                super().register_buffer(name, value, persistent=False)

        m = Own()
        m.x = torch.nn.Buffer(torch.ones(1), persistent=persistent)
        return list(m._buffers), list(m.state_dict())

    agree_in_words(program)
    agree_in_words(lambda torch: program(torch, False))


def test_data_parallel_passes_on():
    def program(torch):
        m = torch.nn.DataParallel(dense(torch))
        return m(torch.ones(1, 2)), list(m.state_dict()), m

    agree_in_words(program)


@pytest.mark.parametrize("assign", [False, True])
def test_swapping_instead_of_setting_data(assign):
    def program(torch):
        import importlib
        choices = importlib.import_module(torch.__name__ + ".__future__")
        choices.set_swap_module_params_on_conversion(True)
        try:
            m = model(torch)
            m(torch.ones(1, 2)).sum().backward()
            m.requires_grad_(True)
            ids = [id(p) for p in m.parameters()]
            m.double()
            kinds = [(str(p.dtype), str(p.grad.dtype), p.requires_grad, p.is_leaf) for p in m.parameters()]
            m.zero_grad()
            new = {k: v.clone() + 1 for k, v in m.state_dict().items()}
            m.load_state_dict(new, assign=assign)
            out = m(torch.ones(1, 2, dtype=torch.float64)).sum()
            out.backward()
            return ids == [id(p) for p in m.parameters()], kinds, out, m.alpha.grad, dict(m.state_dict())
        finally:
            choices.set_swap_module_params_on_conversion(False)

    agree_in_words(program, tolerance=1e-6)
