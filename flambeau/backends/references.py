"""What `sys.getrefcount` says beyond the references that data structures hold.

Where memory may be taken over if nobody else sees it, references are counted. Up to Python 3.13 an argument is a reference of
its own, in getrefcount and in every function that it is handed on to; from 3.14 on a function borrows its caller's. So what is
allowed is written as a sum: holders, local names, `HANDED_ON` per function, and `ASKED`. Where Python counts one more than that
after all (it does not borrow across branches), memory is copied that need not be.
"""

from sys import getrefcount


def _handed_on(value: object) -> int:
    return getrefcount(value)


def _measured() -> tuple[int, int]:
    value = object()
    named = getrefcount(value)
    return named - 1, _handed_on(value) - named


ASKED, HANDED_ON = _measured()  # of getrefcount about a local name; of each further function that gets it as an argument
NAMED = 1 + ASKED               # all that getrefcount says of an object that only a local name refers to
