"""`torch.nested`: tensors of unequal pieces. Not implemented; pad them (`nn.utils.rnn.pad_sequence`) or pack them."""

from .missing import refused

__path__: list[str] = []  # private modules below it are found by name (internals.py)

__all__ = "as_nested_tensor masked_select narrow nested_tensor nested_tensor_from_jagged to_padded_tensor".split()
globals().update(refused("nested", "nested tensors are not implemented (nn.utils.rnn.pad_sequence pads instead)",
                         " ".join(__all__)))
