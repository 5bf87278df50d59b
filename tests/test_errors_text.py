"""Errors that teach: the type and the words of PyTorch's, then the module's path, the tensor's name, the line and what to do.

The page docs/errors.md has the texts in full (test_errors_page.py); here are the forms that a page need not show.
"""

import subprocess
import sys
import traceback
import warnings

import pytest
import torch

import flambeau
from flambeau import nn

# Each raises in PyTorch; its whole message is found in ours.
MISTAKES = """
nn.Linear(4, 2)(t.zeros(3))
nn.Linear(4, 2)(t.zeros(2, 3, 5))
nn.Linear(4, 2, bias=False)(t.zeros(2, 5))
nn.Linear(4, 2)(t.zeros(3, 4, dtype=t.int64))
nn.Conv1d(3, 8, 3)(t.zeros(2, 1, 8))
nn.Conv2d(3, 8, 3)(t.zeros(8, 8))
nn.Conv2d(3, 8, 3)(t.zeros(2, 3, 8, 8).double())
nn.Conv2d(3, 8, 3, bias=False)(t.zeros(2, 3, 8, 8).double())
nn.Conv2d(3, 8, 9)(t.zeros(2, 3, 4, 4))
nn.ConvTranspose2d(3, 8, 3)(t.zeros(2, 1, 8, 8))
nn.Embedding(5, 3)(t.tensor([-1]))
nn.Embedding(5, 3)(t.tensor([1.]))
nn.BatchNorm1d(3)(t.zeros(2, 4))
nn.LayerNorm((4, 5))(t.zeros(2, 4))
nn.GroupNorm(2, 4)(t.zeros(2, 6, 3))
nn.InstanceNorm2d(3, affine=True)(t.zeros(2, 4, 8, 8))
nn.LSTM(4, 3)(t.zeros(2, 2, 5))
nn.GRUCell(4, 3)(t.zeros(2, 5))
nn.MultiheadAttention(4, 2)(t.zeros(2, 3, 5), t.zeros(2, 3, 5), t.zeros(2, 3, 5))
nn.CrossEntropyLoss()(t.zeros(2, 3), t.zeros(3, dtype=t.int64))
nn.CrossEntropyLoss()(t.zeros(2, 3), t.tensor([0, 3]))
t.zeros(2, 3) @ t.zeros(2, 3)
t.zeros(2, 3) @ t.zeros(4)
t.zeros(2, 3, 4) @ t.zeros(3, 4, 5)
t.zeros(2, 3, 4) @ t.zeros(5, 4)
t.bmm(t.zeros(2, 3, 4), t.zeros(2, 5, 4))
t.zeros(2, 3) @ t.zeros(3, 2).double()
t.zeros(2, 3) + t.zeros(2, 4)
t.zeros(2, 3).view(4, -1)
t.zeros(2, 3).reshape(5)
t.optim.SGD([], lr=1)
t.optim.SGD([t.ones(2, requires_grad=True) * 2], lr=1)
t.autograd.grad(t.ones(2, requires_grad=True).sum(), t.ones(2, requires_grad=True))
t.autograd.grad(t.ones(2, requires_grad=True).sum(), t.ones(2))
t.cat([t.zeros(2, 3), t.zeros(2, 4)])
t.stack([t.zeros(2, 3), t.zeros(2, 4)])
t.ones(2).backward()
t.ones(2, requires_grad=True).exp().backward()
t.autograd.grad(t.ones(2).sum(), t.ones(2, requires_grad=True))
t.ones(2, requires_grad=True).add_(1)
t.ones(2, requires_grad=True)[0].add_(1)
""".strip().splitlines()


@pytest.mark.parametrize("source", MISTAKES)
def test_pytorchs_words_are_ours(source):
    found = []
    for package in (torch, flambeau):
        with warnings.catch_warnings(), pytest.raises(Exception) as raised:
            warnings.simplefilter("ignore")
            eval(source, {"t": package, "nn": package.nn})
        found.append(raised.value)
    theirs, ours = found
    assert type(ours) is type(theirs)
    assert str(theirs).strip().rstrip(".") in str(ours)


def text_of(function, *args):
    """The error of a call as Python prints it."""
    with pytest.raises(Exception) as raised:
        function(*args)
    return "".join(traceback.format_exception_only(raised.value))


# ------------------------------------------------------------------------------------------------------------ modules
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, width), nn.Linear(16, 8)

    def forward(self, x):
        x = self.inner(x).relu()
        return self.outer(x)  # the line that fails


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(16), Block(12)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


WRONG = ("In `layers.1.outer` of Net: Linear(in_features=16, out_features=8, bias=True), called at File ",
         "return self.outer(x)  # the line that fails",
         "Its input has shape [3, 12] and its weight [8, 16]: dimension -1 of the input is 12 and should be 16 (in_features). "
         "Write in_features=12 where `layers.1.outer` is made")


def test_the_module_is_named_by_its_path_and_once():
    text = text_of(Net(), flambeau.zeros(3, 8))
    for words in WRONG:
        assert text.count(words) == 1


@pytest.mark.parametrize("hooked", [False, True])
def test_a_compiled_model_names_the_same_module_and_line(hooked):
    model = Net()
    if hooked:
        model.layers[1].register_forward_hook(lambda *_: None)
    compiled = flambeau.compile(model)
    for _ in range(5):  # captured, captured again, then followed
        text = text_of(compiled, flambeau.zeros(3, 8))
        for words in WRONG:
            assert text.count(words) == 1


def test_a_program_that_meets_a_bad_index_names_the_table():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))
    compiled = flambeau.compile(model)
    for _ in range(3):
        compiled(flambeau.tensor([1, 2]))
    text = text_of(compiled, flambeau.tensor([1, 12]))
    assert text.startswith("IndexError: index out of range in self\nIn `0` of Sequential: Embedding(10, 4), called at")
    assert "goes from 1 to 12, and there are rows 0 to 9. Write num_embeddings=13 (at least) where `0` is made" in text


def test_a_compiled_model_that_has_run_names_them_too():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    compiled = flambeau.compile(model)
    for _ in range(3):
        compiled(flambeau.zeros(3, 4))
    assert "In `0` of Sequential: Linear(" in text_of(compiled, flambeau.zeros(3, 5))


def test_errors_of_the_users_own_are_left_alone():
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        nn.Sequential(Raises())(1)
    assert not hasattr(raised.value, "__notes__")


def test_a_module_of_the_users_is_named_with_its_own_line():
    class Product(nn.Module):
        def forward(self, x):
            return x @ x  # cannot be

    text = text_of(nn.Sequential(nn.Identity(), Product()), flambeau.zeros(2, 3))
    assert "In `1` of Sequential: Product(), called at File" in text
    assert "return x @ x  # cannot be" in text


def test_a_module_that_cannot_be_looked_at_hides_no_error():
    class Odd(nn.Linear):
        def extra_repr(self):
            raise KeyError("no")

    text = text_of(Odd(2, 2), flambeau.zeros(3, 3))
    assert text.startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x3 and 2x2)")


def test_a_module_outside_of_any_other_has_no_path():
    assert "In Linear(in_features=2, out_features=2, bias=True), called at" in text_of(nn.Linear(2, 2), flambeau.zeros(3, 3))


# ----------------------------------------------------------------------------------------------------------- autograd
def cut_in_a_function(model, x):
    values = model(x)
    return values.detach().mean()  # cut


@flambeau.no_grad()
def without_gradients(model, x):
    return model(x).mean()


CUTS = {  # statements -> the line that is named, and what is said of it
    "loss = h.detach().sum()": ("loss = h.detach().sum()", "by detach()"),
    "loss = h.data.sum()": ("loss = h.data.sum()", "by .data"),
    "loss = (h > 0).float().sum()": ("loss = (h > 0).float().sum()", "by a comparison"),
    "loss = h.to(torch.int32).sum().float()": ("loss = h.to(torch.int32).sum().float()", "by .to()"),
    "a = h.argmax(1)\nb = a + 1\nloss = b.float().sum()": ("a = h.argmax(1)", "by .argmax()"),
    "a, b = h.detach(), h\nloss = a.sum()": ("a, b = h.detach(), h", "by detach()"),
    "total = 0.0\nfor _ in range(2):\n    total += h.sum().item()\nloss = torch.tensor(total)": (
        "total += h.sum().item()", "by .item()"),
    "with torch.no_grad():\n    a = h * 2\nloss = a.sum()": ("with torch.no_grad():", "by `with torch.no_grad():`"),
    "loss = torch.tensor([float(v) for v in h.sum(1)]).sum()": ("loss = torch.tensor([float(v) for v in h.sum(1)]).sum()",
                                                               "by float()"),
    "loss = torch.tensor(h.tolist()).sum()": ("loss = torch.tensor(h.tolist()).sum()", "by .tolist()"),
    "a = torch.tensor(h)\nloss = a.sum()": ("a = torch.tensor(h)", "by tensor(...), which makes a tensor without history,"),
    "loss = cut_in_a_function(model, x)": ("return values.detach().mean()  # cut", "by detach()"),
    "loss = without_gradients(model, x)": ("@flambeau.no_grad()", "by @flambeau.no_grad()"),
    "loss = x.sum()": (None, "It was computed from `x`, and none of that requires grad."),
}


@pytest.mark.parametrize("source", CUTS)
def test_the_line_that_cut_the_graph_is_found(source, tmp_path):
    line, words = CUTS[source]
    file = tmp_path / "program.py"
    file.write_text("model = torch.nn.Linear(3, 2)\nx = torch.ones(4, 3)\nh = model(x)\n" + source + "\nloss.backward()\n")
    names = {"torch": flambeau, "cut_in_a_function": cut_in_a_function, "without_gradients": without_gradients}
    text = text_of(exec, compile(file.read_text(), str(file), "exec"), names)
    assert "element 0 of tensors does not require grad and does not have a grad_fn" in text
    assert words in text
    if line is not None:
        assert f"\n    {line}\n" in text.partition("Going by the source")[2]
    assert text.rstrip().endswith("loss.backward()")


@pytest.mark.parametrize("source", ["loss = cut_in_a_function(model, x)", "loss = without_gradients(model, x)",
                                    "loss = h.long().sum().float()", "loss = h.data.sum()", "loss = (h > 0).float().mean()"])
def test_anomaly_detection_knows_where_the_graph_was_cut(source):
    names = {"torch": flambeau, "cut_in_a_function": cut_in_a_function, "without_gradients": without_gradients}
    code = "model = torch.nn.Linear(3, 2)\nx = torch.ones(4, 3)\nh = model(x)\n" + source + "\nloss.backward()\n"
    with pytest.warns(UserWarning), flambeau.autograd.detect_anomaly():
        text = text_of(exec, compile(code, "program.py", "exec"), names)
    assert "The graph was cut by " in text and "Going by the source" not in text


def test_data_beside_a_cut_is_not_blamed():
    with pytest.warns(UserWarning), flambeau.autograd.detect_anomaly():
        x = flambeau.ones(2, requires_grad=True)
        loss = (flambeau.tensor([1.0, 2.0]) - x.detach()).sum()
        assert "The graph was cut by detach()" in text_of(loss.backward)


def test_no_source_no_guess():
    code = "loss = torch.ones(3).sum()\nloss.backward()"
    text = text_of(exec, compile(code, "<nowhere>", "exec"), {"torch": flambeau})
    assert "or the graph was cut on the way" in text


def test_inputs_of_grad_are_named():
    x, unused, data = flambeau.ones(2, requires_grad=True), flambeau.ones(2, requires_grad=True), flambeau.ones(2)
    assert "at index 1 appears to not have been used" in text_of(lambda: flambeau.autograd.grad(x.sum(), [x, unused]))
    assert "The tensor is `unused`." in text_of(lambda: flambeau.autograd.grad(x.sum(), [x, unused]))
    assert "The tensor is `data`." in text_of(lambda: flambeau.autograd.grad(x.sum(), data))


def test_the_changed_tensor_is_named_with_both_lines():
    def train(x):
        hidden = x.exp()
        loss = hidden.sum()
        hidden.mul_(2)  # changed
        loss.backward()

    text = text_of(train, flambeau.ones(3, requires_grad=True))
    assert "which is output 0 of Exp, is at version 1; expected version 0" in text
    assert "It is `hidden`, which ExpBackward0 saved as `result`" in text and "hidden.mul_(2)  # changed" in text
    with pytest.warns(UserWarning), flambeau.autograd.detect_anomaly():
        text = text_of(train, flambeau.ones(3, requires_grad=True))
    assert "ExpBackward0 was recorded at File" in text and "hidden = x.exp()" in text


def step_that_changes(x):
    y = x * 2
    z = y * y
    y.add_(1)  # changed here
    z.sum().backward()


def step_without_history(model, x):
    loss = model(x).detach().sum()
    loss.backward()


def step_of_several(model, x):
    model(x).backward()


def step_twice(x):
    loss = (x * x).sum()
    loss.backward()
    loss.backward()  # again


def test_a_change_by_a_program_has_the_line_of_the_compiled_function():
    model = nn.Linear(20, 20)
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)

    @flambeau.compile
    def step(x):
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()  # by the program

    x = flambeau.ones(30, 20)
    for _ in range(5):
        with flambeau.no_grad():
            model.weight.mul_(1.0)  # not to be blamed
        loss = model(x.clone().requires_grad_()).sum()
        step(x)
        text = text_of(loss.backward)
        assert "It is `model.weight`" in text and "optimizer.step()  # by the program" in text and "blamed" not in text


@pytest.mark.parametrize(("step", "words"), [
    (step_that_changes, ["modified by an inplace operation", "It is `y`", "y.add_(1)  # changed here"]),
    (step_twice, ["a second time", "loss.backward()  # again"]),
    (step_without_history, ["does not require grad", "loss = model(x).detach().sum()", "by detach()"]),
    (step_of_several, ["only for scalar outputs", "shape [4, 2]", "model(x).backward()"])])
def test_compiled_steps_name_the_users_lines(step, words):
    compiled, model = flambeau.compile(step), nn.Linear(3, 2)
    for _ in range(4):
        args = (flambeau.ones(3, requires_grad=True),) if step.__code__.co_argcount == 1 else (model, flambeau.ones(4, 3))
        text = text_of(compiled, *args)
        for word in words:
            assert word in text


def test_a_second_pass_of_a_custom_function():
    class Square(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    x = flambeau.ones(2, requires_grad=True)
    y = Square.apply(x)
    y.sum().backward()
    assert "Add the losses and call backward once" in text_of(y.sum().backward)
    assert "leads back into one that an earlier backward pass has freed" in text_of((y * y).sum().backward)


def test_the_first_pass_is_named_under_anomaly_detection():
    with pytest.warns(UserWarning), flambeau.autograd.detect_anomaly():
        x = flambeau.ones(2, requires_grad=True)
        loss = (x * x).sum()
        loss.backward()  # first
        text = text_of(loss.backward)
    assert "It was freed by the backward pass of File" in text and "loss.backward()  # first" in text


def test_nan_of_several_outputs_and_of_nothing_saved():
    with pytest.warns(UserWarning), flambeau.autograd.detect_anomaly():
        x = flambeau.tensor([1.0, float("inf")], requires_grad=True)
        text = text_of(((x - x).sum() * 0).backward, flambeau.tensor(float("nan")))
        assert "The gradient that came in: shape [], torch.float32, nothing finite, 1 of 1 nan" in text
        assert "The first NaN of the forward pass was made by sub of" in text and "1 of 2 infinite" in text


def test_nan_in_a_compiled_step_has_its_line():
    @flambeau.compile
    def step(x):
        y = x.log()  # of what is negative
        (y * y).sum().backward()

    for _ in range(3):
        step(flambeau.ones(4, requires_grad=True))
    with pytest.warns(UserWarning), flambeau.autograd.detect_anomaly():
        text = text_of(step, -flambeau.ones(4).requires_grad_())
    assert "The first NaN of the forward pass was made by log of\n  `self`: shape [4], torch.float32, from -1 to -1" in text
    assert "y = x.log()  # of what is negative" in text


def test_anomaly_detection_leaves_results_alone():
    import copy
    import pickle
    with pytest.warns(UserWarning), flambeau.autograd.detect_anomaly():
        x = flambeau.ones(2, requires_grad=True)
        cut = (x * 2).detach()
        for made in (pickle.loads(pickle.dumps(cut)), copy.deepcopy(cut)):
            assert made.tolist() == [2, 2] and not vars(made)
        there = flambeau.ones(2, device="meta", requires_grad=True)
        (there * there).sum().backward()
        flambeau.ones(2).to(flambeau.bfloat16).sum()
        assert flambeau.vmap(lambda v: (v * x).sum())(flambeau.ones(3, 2)).tolist() == [2, 2, 2]


def test_anomaly_detection_for_a_whole_program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("import flambeau as t\nx = t.tensor([0.0], requires_grad=True)\ny = x.sqrt() * 0\ny.sum().backward()\n")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env={**_environment(),
                                                                                           "FLAMBEAU_DETECT_ANOMALY": "1"})
    assert done.returncode == 1 and "Function 'SqrtBackward0' returned nan" in done.stderr and "line 3" in done.stderr
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=_environment())
    assert done.returncode == 0


def _environment():
    import os
    from pathlib import Path
    root = str(Path(flambeau.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": root, "FLAMBEAU_DETECT_ANOMALY": "0"}


# --------------------------------------------------------------------------------------------------------- optimizers
def test_expected_gradients():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)
    handle = flambeau.optim.expect_gradients(optimizer, model)
    assert "SGD.step(): 4 of 4 parameters have no gradient\nNone has one: backward() was not called" in text_of(optimizer.step)
    model(flambeau.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model[0].weight.requires_grad_(False)
    model(flambeau.ones(1, 2)).sum().backward()
    assert "1 of 4 parameters have no gradient\n  0.weight [2, 2]: frozen (requires_grad=False)" in text_of(optimizer.step)
    handle.remove()
    optimizer.step()


def test_expected_gradients_can_be_allowed_to_miss():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = flambeau.optim.Adam(model.named_parameters())
    flambeau.optim.expect_gradients(optimizer, allow=["1."])
    model[0](flambeau.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert "2 of 4 parameters have no gradient\n  0.weight [2, 2]: not reached" in text_of(optimizer.step)


def test_expected_gradients_without_names_or_with_a_closure():
    one = nn.Parameter(flambeau.ones(2))
    two = nn.Parameter(flambeau.ones(3))
    optimizer = flambeau.optim.LBFGS([one, two], max_iter=1)
    flambeau.optim.expect_gradients(optimizer)

    def closure():
        optimizer.zero_grad()
        loss = (one * one).sum() + (two * two).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    plain = flambeau.optim.SGD([one, two], lr=0.1)
    flambeau.optim.expect_gradients(plain)
    two.grad = None
    assert "  parameter 1 of group 0 [3]: not reached by backward()" in text_of(plain.step)


# --------------------------------------------------------------------------------------------------------- DataLoader
class Stream(flambeau.utils.data.IterableDataset):
    def __iter__(self):
        for i in range(10):
            if i == 5:
                raise KeyError("broken")  # in the stream
            yield flambeau.tensor(i)


class Many(flambeau.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitems__(self, indices):
        return [1 / (i - 13) for i in indices]  # at 13


def _one_more(v):  # where workers are not forked, they get it by name
    return v + 1


@pytest.mark.parametrize("workers", [0, 1])
def test_the_sample_that_failed_is_named(workers):
    def all_of(dataset, **options):
        return list(flambeau.utils.data.DataLoader(dataset, num_workers=workers, **options))

    text = text_of(lambda: all_of(Stream(), batch_size=2))
    assert "KeyError" in text and "for sample 5 of the stream, at File" in text and "# in the stream" in text
    text = text_of(lambda: all_of(Many(), batch_size=10))
    assert text.startswith("ZeroDivisionError") and "one of the indices [10, 11, 12, 13, 14, 15, 16, 17, ...]" in text
    text = text_of(lambda: all_of([1, 2, None, 3], batch_size=None, collate_fn=_one_more))
    assert text.startswith("TypeError") and "got this error for index 2" in text
