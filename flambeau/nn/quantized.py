"""The older path of `ao.nn.quantized`. Its names refuse to be used."""

from ..ao.nn import quantized as _new

globals().update({name: value for name, value in vars(_new).items() if not name.startswith("__")})
