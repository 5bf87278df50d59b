"""Named results of operations that return several tensors: `x.max(0).values`. Named and printed as PyTorch's."""

from __future__ import annotations

from operator import itemgetter


class _Structure(tuple):
    """The base of all of them. (collections.namedtuple compiles a class each time, which every import would wait for.)"""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __new__(cls, *values, **named):
        if named:
            values = (*values, *(named.pop(f) for f in cls._fields[len(values):]))
        elif len(values) == 1 and len(cls._fields) != 1:
            values = tuple(values[0])  # one sequence, as PyTorch's take it
        if len(values) != len(cls._fields) or named:
            raise TypeError(f"torch.return_types.{cls.__name__} takes {len(cls._fields)} values ({', '.join(cls._fields)}), "
                            f"got {len(values)}")
        return tuple.__new__(cls, values)

    def _asdict(self) -> dict:
        return dict(zip(self._fields, self))

    def _replace(self, **changed):
        return type(self)(*[changed.get(f, v) for f, v in zip(self._fields, self)])

    def __reduce__(self):
        return _rebuild, (type(self).__name__, tuple(self))

    def __repr__(self) -> str:
        body = ",\n".join(f"{f}={v!r}" for f, v in zip(self._fields, self))
        return f"torch.return_types.{type(self).__name__}(\n{body})"


def _rebuild(name: str, values: tuple) -> _Structure:
    return globals()[name](*values)


def structure(name: str, fields: str) -> type:
    """A named tuple that prints like `torch.return_types.max(values=..., indices=...)`."""
    names = tuple(fields.split())
    members = {f: property(itemgetter(i)) for i, f in enumerate(names)}
    made = type(name, (_Structure,), {"__slots__": (), "__module__": "torch.return_types", "_fields": names,
                                      "__match_args__": names, **members})
    globals()[name] = made
    return made


for _name in ("max", "min", "median", "nanmedian", "mode", "kthvalue", "sort", "topk", "cummax", "cummin"):
    structure(_name, "values indices")
structure("aminmax", "min max")
structure("frexp", "mantissa exponent")
structure("slogdet", "sign logabsdet")
structure("qr", "Q R")
structure("svd", "U S V")
structure("histogram", "hist bin_edges")
structure("histogramdd", "hist bin_edges")
structure("geqrf", "a tau")
structure("triangular_solve", "solution cloned_coefficient")
structure("lu_unpack", "P L U")
structure("linalg_slogdet", "sign logabsdet")
structure("linalg_qr", "Q R")
structure("linalg_svd", "U S Vh")
structure("linalg_eig", "eigenvalues eigenvectors")
structure("linalg_eigh", "eigenvalues eigenvectors")
structure("linalg_lstsq", "solution residuals rank singular_values")
structure("linalg_cholesky_ex", "L info")
structure("linalg_inv_ex", "inverse info")
structure("linalg_solve_ex", "result info")
structure("linalg_lu", "P L U")
structure("linalg_lu_factor", "LU pivots")
structure("linalg_lu_factor_ex", "LU pivots info")
structure("linalg_ldl_factor", "LD pivots")
structure("linalg_ldl_factor_ex", "LD pivots info")
