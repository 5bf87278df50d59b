"""The older path of `ao.nn.intrinsic`. Its names refuse to be used."""

from ..ao.nn import intrinsic as _new

globals().update({name: value for name, value in vars(_new).items() if not name.startswith("__")})
