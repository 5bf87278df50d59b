"""What every test takes for granted: nothing in it depends on time, and the reference PyTorch runs on this machine."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, settings

# Some machines report AMX without granting it, and PyTorch then dies of an illegal instruction in half-precision products.
# oneDNN reads this once, so it is set before the first import of torch; processes that tests start inherit it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Random programs are other ones in each run; all processes of one run have to name the same tests.
os.environ.setdefault("FLAMBEAU_RUN", str(random.SystemRandom().randrange(10 ** 9)))

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(params=[1, 2])
def threads(request):
    """The test runs with one thread, then with two."""
    import flambeau
    before = flambeau.get_num_threads()
    flambeau.set_num_threads(request.param)
    yield request.param
    flambeau.set_num_threads(before)


@pytest.fixture(scope="module")
def cuda():
    """The name of a CUDA device: the machine's own, or else one that the host plays while the module's tests run."""
    from cuda_host import playing
    with playing():
        yield "cuda"
