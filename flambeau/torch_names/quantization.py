"""`torch.quantization`: the older path of `torch.ao.quantization`. Its names refuse to be used."""

import sys

from .ao import quantization as _new

globals().update({name: value for name, value in vars(_new).items() if not name.startswith("__")})
for _name in ("observer", "fake_quantize", "qconfig", "quantize", "stubs", "fuse_modules"):
    sys.modules[f"{__name__}.{_name}"] = sys.modules[f"{_new.__name__}.{_name}"]
