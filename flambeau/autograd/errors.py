"""What autograd says when a program goes wrong: PyTorch's words, then which tensor, which line, and what to do.

All of it is gathered when the error is raised: from the stack (frames.py), from the graph, and under anomaly detection from
what the nodes noted. Nothing here is on the path of a program that goes well.
"""

from __future__ import annotations

from typing import Any

from ..tensors.dtypes import BY_NUM
from ..tensors.tensor import Tensor
from .frames import location, place, user_frame, variable_names
from .node import AccumulateGrad, Edge, Node, Packed, SavedOutput, VersionCounter, graph_node, short_name, type_name

SWITCH = "torch.autograd.set_detect_anomaly(True)"
IN_ENVIRONMENT = "FLAMBEAU_DETECT_ANOMALY=1 in the environment does the same"


def compiled_changes(counter: VersionCounter) -> list[Any]:
    """Lines of compiled functions that may have moved a counter; the compiler puts its own function here."""
    return []


def called_at() -> str:
    """The user's line that is under way, as the last lines of a message."""
    where = place(user_frame())
    return "" if where is None else f"\nCalled at {location(where)}"


def noted(node: Node, what: str) -> str | None:
    """What anomaly detection wrote down about a node; None where it was off."""
    return node._metadata.get(what) if node._metadata else None


def _named(names: list[str]) -> str:
    return " = ".join([f"`{n}`" for n in names])


def names_of(array: Any) -> list[str]:
    """What the functions under way call the tensor over an array: variables, or parameters of a model they know."""
    found = variable_names(lambda v: isinstance(v, Tensor) and v._array is array)
    if found:
        return found
    paths: list[str] = []

    def holds(value: Any) -> bool:
        if "_parameters" in getattr(value, "__dict__", ()) and hasattr(value, "named_parameters"):  # an nn.Module
            paths.extend([path for path, p in value.named_parameters() if p._array is array][:1])
        return bool(paths)

    owner = variable_names(holds, most=1)
    return [f"{owner[0]}.{paths[0]}"] if owner else []


# ---------------------------------------------------------------------------------------------------- backward twice
def freed_error(node: Any, what: str = "") -> RuntimeError:
    """Values that a node saved were asked for after a backward pass freed them."""
    text = (what or "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed)") + ". Saved intermediate values of the graph are freed when you call .backward() or " \
        "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if you " \
        f"need to access saved tensors after calling backward. (The node is {node.name()}.)"
    return RuntimeError(text + _second_pass(node) + called_at())


def _second_pass(node: Any) -> str:
    from .engine import current_task
    task, node = current_task(), graph_node(node)
    lines = []
    if task is not None and _is_new_graph_on_old(node, task.reached):
        lines.append("What backward was called on is new, but its graph leads back into one that an earlier backward pass has "
                     "freed: something from before that pass is used again, like a hidden state or a running sum of losses. "
                     "Carry it over with detach(), or compute it anew.")
    elif task is not None:
        lines.append("Add the losses and call backward once, or say retain_graph=True in all calls but the last.")
    recorded, freed = noted(node, "forward_line"), noted(node, "freed_line")
    if recorded is not None:
        lines.append(f"{node.name()} was recorded at {recorded}")
    if freed is not None:
        lines.append(f"It was freed by the backward pass of {freed}")
    if task is not None and freed is None:
        lines.append(f"Hint: with {SWITCH} this message names the line of the first pass ({IN_ENVIRONMENT}).")
    return "".join(["\n" + line for line in lines])


def _is_new_graph_on_old(node: Any, reached: dict[Node, int]) -> bool:
    """Whether this pass has run nodes before that could be run: had an earlier pass freed them, they had failed first."""
    for other in reached:
        if other.sequence > node.sequence and not other.is_leaf_node and other is not node:
            saved = other.saved
            if saved is None or any([v.__class__ in (SavedOutput, Packed) or hasattr(v, "_array") for v in saved]):
                return True
    return False


# --------------------------------------------------------------------------------------------------- in-place changes
def modified_error(node: Node, tensor: Any, array: Any, saved: int, now: int, counter: VersionCounter) -> RuntimeError:
    """A saved value was written to since: says which one, who saved it as what, and the line that wrote."""
    made_by = ""
    if tensor is not None and tensor._node is not None and tensor._node.__class__ is not AccumulateGrad:
        edge = tensor._node
        source, nr = (edge.node, edge.nr) if edge.__class__ is Edge else (edge, 0)
        made_by = f", which is output {nr} of {short_name(source)},"
    text = ("one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[torch.{type_name(BY_NUM[array.dtype.num])} {list(array.shape)}]{made_by} is at version {now}; expected version "
            f"{saved} instead.")
    names = names_of(array)
    slot = _slot_of(node, array)
    who = f"It is {_named(names)}, which" if names else "It is a tensor that"
    text += f"\n{who} {node.name()} saved{f' as `{slot}`' if slot else ''} for its backward pass."
    if counter.where and counter.at == now:
        text += f"\nThe in-place change was made at {location(counter.where)}"
    elif lines := compiled_changes(counter):
        text += "\nThe in-place change was made by a compiled call, at "
        text += "\nor at ".join([location(line) for line in lines[:3]])
    recorded = noted(node, "forward_line")
    if recorded is not None:
        text += (f"\n{node.name()} was recorded at {recorded}\nHint: the backtrace further above shows the operation that "
                 "failed to compute its gradient.")
    else:
        text += (f"\nHint: enable anomaly detection to find the operation that failed to compute its gradient, with "
                 "torch.autograd.set_detect_anomaly(True, check_nan=False). "
                 f"The message then has the line that saved the tensor ({IN_ENVIRONMENT}).")
    return RuntimeError(text + "\nMake a new tensor in place of the change (x = x + 1 for x += 1), or change it after the "
                        "backward pass.")


def _slot_of(node: Any, array: Any) -> str:
    """The name under which a node saved an array: an argument of its operation, or its result."""
    row = getattr(node, "row", None)
    if row is None or not node.saved:
        return ""
    for slot, value in zip(row.slots, node.saved):
        held = value.array if value.__class__ is SavedOutput else getattr(value, "_array", value)
        if held is array:
            return slot
    return ""


def leaf_error(tensor: Any, view: bool) -> RuntimeError:
    """A leaf that requires grad would be changed in place, by itself or through a view."""
    return RuntimeError(f"{'a view of ' if view else ''}a leaf Variable that requires grad is being used in an in-place "
                        "operation. Wrap the change in torch.no_grad(), or work on a clone()."
                        + which(tensor))


def which(tensor: Any) -> str:
    """The last lines of a message about a tensor that was given: what the user calls it, and the call."""
    names = names_of(tensor._array) if hasattr(tensor, "_array") else []
    return (f"\nThe tensor is {_named(names)}." if names else "") + called_at()


# ------------------------------------------------------------------------------------------- where backward may start
def no_history_error(out: Any, i: int) -> RuntimeError:
    """Backward from a tensor that nothing was recorded for."""
    text = f"element {i} of tensors does not require grad and does not have a grad_fn"
    frame = user_frame()
    try:
        from .cuts import explain
        found = explain(out, frame)
    except Exception:  # the explanation is a courtesy; the error is not
        found = []
    return RuntimeError("\n".join([text, *found]) + called_at())


def not_scalar_error(shape: Any) -> RuntimeError:
    """Backward from more than one number, without a gradient to start from."""
    return RuntimeError(f"grad can be implicitly created only for scalar outputs, got a tensor of shape {list(shape)}: "
                        f"pass its gradient, or reduce it (say with sum())\nA gradient is that of one number. Write "
                        "loss.mean().backward() or loss.sum().backward(), or give one weight per element: "
                        "loss.backward(torch.ones_like(loss))." + called_at())
