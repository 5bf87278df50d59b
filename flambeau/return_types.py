"""Named results of operations that return several tensors: `x.max(0).values`. Named and printed as PyTorch's."""

from __future__ import annotations

from collections import namedtuple


def structure(name: str, fields: str) -> type:
    """A named tuple that prints like `torch.return_types.max(values=..., indices=...)`."""
    base = namedtuple(name, fields)

    def __repr__(self) -> str:
        body = ",\n".join(f"{f}={getattr(self, f)!r}" for f in self._fields)
        return f"torch.return_types.{name}(\n{body})"

    made = type(name, (base,), {"__slots__": (), "__repr__": __repr__, "__module__": "torch.return_types",
                                "__match_args__": tuple(fields.split())})
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
