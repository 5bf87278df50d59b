"""Views as arguments and beside the call: where they begin, what they are views of, and whose history they have."""

from __future__ import annotations

from soundness.world import Thing, nn, torch, turns, vec


def shown(result):
    """What can be asked of a tensor beside its values."""
    return (result, result.stride(), result.storage_offset(), result._version, result.is_leaf, result._is_view(),
            result.untyped_storage().nbytes())


def tried(f, *args):
    try:
        return f(*args)
    except RuntimeError as error:
        return str(error).partition(".")[0]


def later(n):
    return (torch.arange(0.0, 9.0) + n)[n:n + 4]


# ----------------------------------------------------------------------------------------------------- where they begin
def window_with_an_offset_of_its_own(compile):
    f = compile(lambda x: x.as_strided((2,), (1,), 3) * 2)
    for n in (0, 0, 0, 1, 1, 2, 0, 3):
        yield f(later(n))


def window_before_the_argument(compile):
    f = compile(lambda x: x.as_strided((3,), (1,), 0))
    for n in (1, 1, 1, 0, 2, 2):
        yield shown(f(later(n)))


def window_of_a_buffer_that_moves(compile):
    box = Thing(buffer=later(0))
    f = compile(lambda x: box.buffer.as_strided((2,), (1,), 2) * x[:2])
    for n in (0, 0, 0, 2, 2, 1):
        box.buffer.data = later(n)
        yield f(vec())


def pairs_as_complex_numbers(compile):
    f = compile(lambda x: torch.view_as_complex(x.view(2, 2)))
    for n in (0, 0, 0, 1, 2, 1):
        yield tried(f, later(n))


def wider_elements(compile):
    f = compile(lambda x: x.view(torch.float64))
    for n in (0, 0, 0, 1, 2, 1):
        yield tried(f, later(n))


# ----------------------------------------------------------------------------------------------------- views or not
def detached_in_place_if_it_is_no_view(compile):
    f = compile(lambda x: x.detach_() * 2)
    for n in range(9):
        yield tried(f, later(0) if n % 3 == 2 else later(0).clone())


def view_made_without_recording(compile):
    f = compile(lambda x: x * 2)
    for n in range(9):
        x = vec().requires_grad_(n > 2)
        with torch.no_grad():
            view = x[:3]
        y = f(view if n % 3 else x.detach())
        yield y, y.requires_grad


def view_made_without_recording_changed(compile):
    f = compile(lambda x: x.add_(1))
    for n in range(9):
        x = vec().requires_grad_(n % 3 == 2)
        with torch.no_grad():
            view = x.view(3)
        yield tried(f, view), x.detach()


def hooked_leaf_or_part_of_a_graph(compile):
    f = compile(lambda x: (x.is_leaf, x * 2))
    for n in range(9):
        x = vec().requires_grad_()
        if n % 3 == 1:
            x.register_hook(lambda grad: grad * 2)
        yield f(x * 1 if n % 3 == 2 else x)


def base_of_a_held_view_gets_a_history(compile):
    base, weight = torch.ones(4), torch.full((4,), 2.0, requires_grad=True)
    view = base[:3]
    f = compile(lambda x: x * view)
    for n in range(9):
        if n == 4:
            base.mul_(weight)
        y = f(vec())
        yield y, y.requires_grad
        if y.requires_grad:
            y.sum().backward(retain_graph=True)
            yield weight.grad


def base_of_a_held_view_wants_a_gradient(compile):
    base = torch.ones(4)
    view = base[:3]
    f = compile(lambda x: (view.requires_grad, x + 1))
    for n in range(9):
        if n in (3, 6):
            base.requires_grad_(n == 3)
        yield f(vec())


def base_of_a_held_view_of_several_changed(compile):
    weight = torch.ones(6, requires_grad=True)
    base = weight * 2
    view = base.split(3)[0]
    f = compile(lambda x: x * view)
    for n in range(6):
        if n == 3:
            with torch.no_grad():
                base.add_(1)
        yield tried(f, vec())


# ----------------------------------------------------------------------------------------------------- what results are
def results_changed_in_the_call(compile):
    f = compile(lambda x: x.clone().mul_(3).clamp_(0, 4))
    for n in range(6):
        yield shown(f(vec() * n))


def window_onto_a_result_changed_in_the_call(compile):
    def f(x):
        y = x * 2
        y.add_(1)
        return y[1:]
    f = compile(f)
    for n in range(6):
        yield shown(f(vec() * n))


def filled_as_a_transposed_argument(compile):
    f = compile(lambda x, fill: torch.full_like(x, fill))
    for n in range(6):
        yield shown(f(torch.ones(3, 2).t(), 2 if n < 3 else 3))


def part_of_a_constant(compile):
    f = compile(lambda x, step: torch.arange(8.0)[::step])
    for value in turns(f, (2, 2, 2, 3, 3)):
        yield shown(value)
        value.zero_()


def result_of_one_element_per_image(compile):
    pool = nn.MaxPool2d(2)
    f = compile(lambda x: pool(x))
    for n in range(6):
        x = torch.arange(32.0).reshape(2, 4, 2, 2) * n
        yield shown(f(x.contiguous(memory_format=torch.channels_last) if n % 3 else x))


def result_without_elements(compile):
    f = compile(lambda x: x.transpose(0, 1))
    for n in (2, 2, 0, 0, 0, 3):
        yield shown(f(torch.ones(n, 4)))


def on_the_meta_device(compile):
    f = compile(lambda x: x.add_(1))
    for n in range(6):
        x = torch.ones(3, device="meta" if n > 2 else "cpu")
        y = f(x)
        yield y.shape, y.device.type, x._version, y is x
        x.mul_(2)
        yield f(x)._version


def part_of_several_written_by_the_caller(compile):
    weight = torch.ones(4, requires_grad=True)
    f = compile(lambda x: (weight * x).split(2)[0])
    for n in range(6):
        y = f(vec(4) * n)
        yield tried(lambda: y.add_(1)), y
