"""The older path of `ao.nn.quantizable`. Its names refuse to be used."""

from ..ao.nn import quantizable as _new

globals().update({name: value for name, value in vars(_new).items() if not name.startswith("__")})
