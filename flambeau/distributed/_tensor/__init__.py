"""What `distributed.tensor` was called before PyTorch 2.5."""

import sys

from .. import tensor

for _name in ("placement_types", "experimental"):
    sys.modules[f"{__name__}.{_name}"] = getattr(tensor, _name)
sys.modules[__name__] = tensor
