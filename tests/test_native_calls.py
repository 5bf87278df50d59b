"""Native functions as builtins of Python's: every kind of argument arrives, as it does through ctypes."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest

from flambeau.native import Library, calls, pointer, toolchain

SOURCE = """
#include <math.h>
#include <time.h>
void many(long a, int b, double *out, float c, long d, long e, long f, long g, double h, long i, int j, float k, const long *l,
          double m) {
    double all[] = {a, b, c, d, e, f, g, h, i, j, k, l ? l[0] : -1, m};
    for (int n = 0; n < 13; n++) out[n] = all[n];
}
long larger(long a, long b) { return a > b ? a : b; }
int negative(int a) { return -a; }
double half(double a) { return a / 2; }
void nothing(void) {}
long wait_for(volatile long *flags) {  // says that it has begun, and waits until it is answered: a minute at most
    struct timespec t = {0, 10000000};
    flags[0] = 1;
    for (int n = 0; n < 6000 && !flags[1]; n++) nanosleep(&t, 0);
    return flags[1];
}
"""


SIGNATURES = {"many": ":lipflllldlifpd", "larger": "l:ll", "negative": "i:i", "half": "d:d", "nothing": ":",
              "wait_for": "l:p"}


@pytest.fixture(scope="module", params=["builtin", "ctypes"])
def library(request):
    if toolchain.compiler() is None:
        pytest.skip("no C compiler here")
    handle = toolchain.load(toolchain.build(SOURCE, "testcalls"), private=True)
    if request.param == "builtin":
        if calls._call() is None:
            pytest.skip("functions of this platform are called through ctypes")
        return Library(handle, SIGNATURES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "_call", lambda: None)
        return Library(handle, SIGNATURES)


def test_kind(library):
    made = calls._call() is not None and isinstance(library.larger, type(len))
    assert made or isinstance(library.larger, ctypes._CFuncPtr)


def test_every_argument_arrives(library):
    out, more = np.zeros(13), np.array([77])
    library.many(1, -2, out, 3.5, 4, True, 2**62, -7, 8.25, 9, 10, -11.5, more, 1e300)
    assert out.tolist() == [1, -2, 3.5, 4, 1, 2.0**62, -7, 8.25, 9, 10, -11.5, 77, 1e300]
    library.many(1, -2, pointer(out), 3, 4, 5, 6, 7, 8, 9, 10, 11, None, 12)
    assert out.tolist() == [1, -2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -1, 12]
    longer = np.zeros(14)
    library.many(np.int64(5), -2, longer[1:], 3, 4, 5, 6, 7, np.float32(0.5), 9, 10, 11, None, 12)
    assert longer[:2].tolist() == [0, 5] and longer[8] == 0.5


def test_results(library):
    assert library.larger(3, -4) == 3 and library.larger(-5, -4) == -4
    assert library.negative(7) == -7
    assert library.half(3.0) == 1.5
    assert library.nothing() is None
    assert library.larger(2**64 - 1, -3) == -1  # the lowest bits, as in C


@pytest.mark.parametrize("arguments", [(1,), ("a", 2), (None, 2), (1.5, 2)])
def test_wrong_arguments(library, arguments):
    with pytest.raises((TypeError, ctypes.ArgumentError)):
        library.larger(*arguments)
    with pytest.raises((TypeError, ctypes.ArgumentError)):
        library.half("a")


def test_too_many_arguments(library):
    if isinstance(library.larger, type(len)):  # ctypes passes them on
        with pytest.raises(TypeError, match="wrong number"):
            library.larger(1, 2, 3)


def test_other_threads_run_meanwhile(library):
    flags, answered = np.zeros(2, np.int64), []
    thread = threading.Thread(target=lambda: answered.append(library.wait_for(flags)))
    thread.start()
    while not flags[0]:
        time.sleep(0.001)
    flags[1] = 1
    thread.join()
    assert answered == [1]
