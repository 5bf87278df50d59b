"""Writes flambeau/ops/dispatch/schemas.txt: which arguments PyTorch's operations have, read off an installed PyTorch.

    python tools/aten_schemas.py

One line per overload, as `torch.ops.aten.<name>.<overload>._schema` says it. A `~` in front: PyTorch puts the operation
together from others, so that nothing below autograd ever sees it. Behind a `#`: its tags. Overloads of named dimensions and of
lists are left out.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

import flambeau
from flambeau.ops.dispatch.kernels import KERNELS
from flambeau.ops.dispatch.schemas import names as listed

OUT = Path(flambeau.__file__).parent / "ops" / "dispatch" / "schemas.txt"
SPACES = (flambeau, flambeau.Tensor, flambeau.nn.functional, flambeau._C._nn)
PREFIXES = ("linalg", "fft", "special")


def known() -> set[str]:
    """The names that flambeau can compute."""
    names = {name for space in SPACES for name in dir(space)} | set(KERNELS)
    names |= {name for name in listed() if "_backward" in name}  # (computed from their forward operations)
    return names | {f"{p}_{name}" for p in PREFIXES for name in dir(getattr(flambeau, p))}


def is_composite(name: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, "CompositeImplicitAutograd") and not has(name, "Autograd") and not has(name, "AutogradCPU")


def tags(name: str, overload: str) -> str:
    """What PyTorch says of an overload; what it says of all of them is left out."""
    words = [tag.name for tag in getattr(getattr(torch.ops.aten, name), overload or "default").tags]
    return "  # ".join(["", " ".join(w for w in words if w != "pt2_compliant_tag")]).rstrip(" #")


def lines() -> list[str]:
    names, found = known(), []
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        full = f"{schema.name}.{schema.overload_name}".rstrip(".")
        if name not in names or not schema.name.startswith("aten::") or name.startswith(("_foreach", "__", "_fused")) or (
                not torch._C._dispatch_has_kernel(full) or "Dimname" in str(schema)):
            continue
        text = re.sub(r"^aten::", "", str(schema))
        text = re.sub(r"\((\w+(?:, \w+)*)\) \(\)", r"(\1)", text)
        found.append("~" * is_composite(full) + text + tags(name, schema.overload_name))
    return sorted(found, key=lambda line: line.lstrip("~").partition("(")[0])


if __name__ == "__main__":
    OUT.write_text("\n".join(lines()) + "\n")
    print(f"{OUT}: {len(lines())} overloads, {OUT.stat().st_size} bytes")
