"""Tracing with values, below autograd: not implemented."""

from ...missing import refused


def get_proxy_mode() -> None:
    """The tracing under way: none."""


globals().update(refused("fx.experimental.proxy_tensor", "tracing below autograd is not implemented",
                         "make_fx get_isolated_graphmodule ProxyTorchDispatchMode"))
