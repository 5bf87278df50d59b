"""The older path of `ao.nn.qat`. Its names refuse to be used."""

from ..ao.nn import qat as _new

globals().update({name: value for name, value in vars(_new).items() if not name.startswith("__")})
