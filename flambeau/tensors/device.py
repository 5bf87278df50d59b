"""`flambeau.device`: where a tensor lives."""

from __future__ import annotations

import threading

# All that PyTorch knows: where flambeau has no backend the name is accepted, making a tensor there is not.
_KINDS = tuple("""cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu mtia
    privateuseone""".split())


class device:
    """A device type and, for accelerators, an index: `device("cpu")`, `device("cuda:0")`, `device("cuda", 1)`.

    >>> torch.device("cuda", 1)
    device(type='cuda', index=1)
    >>> torch.zeros(2, device="meta").device.type
    'meta'
    """

    __slots__ = ("index", "type")

    def __init__(self, device: str | int | device = "cpu", index: int | None = None, *, type: str | None = None):
        spec = type if type is not None else device
        if isinstance(spec, _DEVICE):
            self.type, self.index = spec.type, spec.index
            return
        if isinstance(spec, int) and not isinstance(spec, bool):
            if spec < 0:
                raise RuntimeError("Device index must not be negative")
            spec, index = "cuda", spec
        if not isinstance(spec, str):
            raise TypeError(f"device(): expected a device string or index, got {spec.__class__.__name__}")
        kind, colon, number = spec.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {spec}")
            if not number.isdigit() or number != str(int(number)):
                raise RuntimeError(f"Invalid device string: '{spec}'")
            index = int(number)
        if kind not in _KINDS:
            raise RuntimeError(f"Expected one of {', '.join(_KINDS)} device type at start of device string: {spec}")
        if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
            raise TypeError(f"device(): argument 'index' (position 2) must be int, not {index.__class__.__name__}")
        self.type, self.index = kind, index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (")" if self.index is None else f", index={self.index})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DEVICE) and self.type == other.type and self.index == other.index

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self):
        return _DEVICE, (str(self),)

    def __enter__(self):
        defaults.stack.append(self)
        return self

    def __exit__(self, *exc):
        defaults.stack.pop()


class _Defaults(threading.local):
    """Where factories make tensors in this thread: innermost `with device(...)` last, and what `set_default_device` said."""

    def __init__(self) -> None:
        self.stack: list[device] = []
        self.device: device | None = None


defaults = _Defaults()
_DEVICE = device
CPU = device("cpu")
META = device("meta")


def to_device(spec: str | int | device | None) -> device:
    """A device from whatever a user passed; None means the CPU."""
    if spec is None:
        return CPU
    return spec if spec.__class__ is _DEVICE else _DEVICE(spec)
