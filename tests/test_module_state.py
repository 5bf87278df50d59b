"""state_dict and load_state_dict of modules: keys, misfits, extra state and hooks; against PyTorch."""


import pytest
from compare import agree_in_words
from layer_cases import dense, model

import flambeau


# -------------------------------------------------------------------------------------------------- state_dict: in, out
def state(torch, **changes):
    made = model(torch).state_dict()
    for key, value in changes.items():
        key = key.replace("__", ".")
        if value is None:
            del made[key]
        else:
            made[key] = value
    return made


def test_state_dict():
    def program(torch):
        m = model(torch)
        d = m.state_dict()
        shared = d["first.weight"].data_ptr() == m.first.weight.data_ptr()
        kept = m.state_dict(keep_vars=True)["first.weight"] is m.first.weight
        return (dict(d), dict(d._metadata), shared, kept, list(m.state_dict(prefix="p.")), type(d).__name__,
                dict(m.state_dict(prefix="p.")._metadata), dict(m.state_dict({}, "q.")),
                dict(m.state_dict({}, "q.", True)))

    agree_in_words(program)


LOADS = {
    "all": lambda torch: state(torch),
    "empty": lambda torch: {},
    "missing": lambda torch: state(torch, first__weight=None),
    "unexpected": lambda torch: {"x": torch.ones(1), "first.y.z": 1, "scale.scratch": torch.ones(3), "q.r": 2},
    "a list": lambda torch: [1],
    "half as big": lambda torch: {"alpha": torch.ones(1, dtype=torch.float16)},
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("case", LOADS)
def test_load_state_dict(case, strict):
    def program(torch):
        m = model(torch)
        with torch.no_grad():
            for p in m.parameters():
                p.zero_()
        answer = m.load_state_dict(LOADS[case](torch), strict=strict)
        return answer, answer.missing_keys, answer.unexpected_keys, dict(m.state_dict())

    if case == "missing" and strict:  # something was loaded: we add a line that says what
        with pytest.raises(RuntimeError) as caught:
            program(flambeau)
        assert str(caught.value) == (
            'Error(s) in loading state_dict for Model:\n\tMissing key(s) in state_dict: "first.weight". \n\tLoaded all '
            "the same: alpha, first.bias, scale.factor, second.weight, second.bias. Everything else is as it was.")
    elif case == "half as big" and strict:
        agree_in_words(program, text=False)
    else:
        agree_in_words(program)


@pytest.mark.parametrize("value", [lambda torch: torch.ones(2, 2), lambda torch: 3, lambda torch: torch.ones(3, 2, 1)])
def test_misfits_are_named_and_the_rest_is_loaded_as_in_pytorch(value):
    def program(torch):
        m = dense(torch)
        try:
            m.load_state_dict({"weight": value(torch), "bias": torch.tensor([7.0, 8.0, 9.0])}, strict=False)
        except RuntimeError as error:
            text = str(error).replace("\n\tLoaded all the same: bias. Everything else is as it was.", "")
            return text, m.bias, torch.isfinite(m.weight).all()

    agree_in_words(program)


def test_load_state_dict_details():
    def program(torch):
        m = model(torch)
        tensors = m.state_dict()
        new = {k: v.clone().to(torch.float64) for k, v in tensors.items()}
        ids = [id(p) for p in m.parameters()]
        m.load_state_dict(new)  # cast on the way in
        kept = ids == [id(p) for p in m.parameters()]
        m.alpha.requires_grad_(False)
        m.load_state_dict(new, assign=True)
        scalar = torch.nn.Module()
        scalar.register_buffer("s", torch.tensor(1.0))
        scalar.load_state_dict({"s": torch.tensor([5.0])})
        return (kept, str(m.first.weight.dtype), m.alpha.requires_grad, m.first.weight.requires_grad,
                m.scale.factor is new["scale.factor"], type(m.alpha).__name__, scalar.s)

    agree_in_words(program)


def test_extra_state():
    def program(torch):
        class Extra(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = dense(torch)
                self.notes = 5

            def get_extra_state(self):
                return self.notes

            def set_extra_state(self, notes):
                self.notes = notes + 1

        m = Extra()
        said = []
        said.append(list(m.state_dict()))
        said.append(str(m.load_state_dict(m.state_dict())))
        said.append(m.notes)
        plain = torch.nn.Module()
        plain.inner = dense(torch)
        for target, source in ((m, plain), (plain, m)):
            try:
                target.load_state_dict(source.state_dict())
            except RuntimeError as error:
                said.append(str(error).partition("\n\tLoaded")[0])
        return said

    agree_in_words(program)
    agree_in_words(lambda torch: dense(torch).get_extra_state(), text=False)


def test_state_dict_hooks():
    def program(torch):
        m = model(torch)
        said = []
        m.register_state_dict_pre_hook(lambda mod, prefix, keep: said.append(("pre", type(mod).__name__, prefix, keep)))
        m.first.register_state_dict_post_hook(lambda mod, d, prefix, meta: d.update({prefix + "more": 1}) or None)
        handle = m.second._register_state_dict_hook(lambda mod, d, prefix, meta: said.append((prefix, dict(meta))))
        keys = list(m.state_dict())
        handle.remove()
        m.first.register_load_state_dict_pre_hook(
            lambda mod, d, prefix, meta, strict, missing, unexpected, errors: said.append((prefix, strict, len(d))) or
            d.pop(prefix + "more"))
        m.register_load_state_dict_post_hook(lambda mod, keys: said.append(("post", list(keys.missing_keys))))
        m.second._register_load_state_dict_pre_hook(lambda d, prefix, *rest: said.append(("old", prefix)))
        m.load_state_dict(m.state_dict())
        return keys, said

    agree_in_words(program)
    agree_in_words(lambda torch: (lambda m: (m.register_state_dict_post_hook(lambda *a: {}), m.state_dict()))(dense(torch)))
    agree_in_words(lambda torch: (lambda m: (m.register_load_state_dict_post_hook(lambda *a: 3),
                                   m.load_state_dict(m.state_dict())))(
        dense(torch)))
    agree_in_words(lambda torch: (lambda m: (m.register_load_state_dict_post_hook(lambda mod, k: k.missing_keys.clear()),
                                             m.load_state_dict({})))(dense(torch))[1])
    agree_in_words(lambda torch: (lambda m: (m._register_state_dict_hook(lambda *a: {"a": 1}),
                                             m.state_dict()))(dense(torch))[1])
