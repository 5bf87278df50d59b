"""A call takes the next of an iterator: of every kind that Python has, in every way; each call gets another one."""

from __future__ import annotations

import asyncio
import collections
import itertools

import numpy as np

from soundness.world import Thing, around, each, torch, vec

NINE = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]


def taking(compile, it):
    """Calls that multiply by the next number; and what is left."""
    yield from each(compile(lambda x: x * next(it)), vec())
    yield next(it)


# ------------------------------------------------------------------------------------------------- iterators of containers
def iterator_of_a_tuple(compile):
    return taking(compile, iter(tuple(NINE)))


def iterator_of_a_range(compile):
    return taking(compile, iter(range(1, 10)))


def iterator_of_a_dict(compile):
    return taking(compile, iter(dict.fromkeys(NINE)))


def iterator_of_the_items_of_a_dict(compile):
    it = iter({str(n): n for n in NINE}.items())

    def f(x):
        name, value = next(it)
        return x * value + len(name)
    yield from each(compile(f), vec())
    yield next(it)


def iterator_of_a_set(compile):
    return taking(compile, iter(set(range(1, 10))))


def iterator_of_text(compile):
    it = iter("abcdefghi")
    return each(compile(lambda x: x * (ord(next(it)) - 96)), vec())


def iterator_of_bytes(compile):
    return taking(compile, iter(bytes(range(1, 10))))


def iterator_of_a_deque(compile):
    return taking(compile, iter(collections.deque(NINE)))


def iterator_backwards(compile):
    return taking(compile, reversed(NINE))


def iterator_of_a_tensor(compile):
    it = iter(torch.arange(27.0).reshape(9, 3))
    return each(compile(lambda x: x * next(it)), vec())


def iterator_of_an_array(compile):
    it = iter(np.arange(1.0, 10.0))
    return each(compile(lambda x: x * float(next(it))), vec())


def iterator_by_a_sentinel(compile):
    rest = list(NINE)
    return taking(compile, iter(rest.pop, None))


def iterator_over_a_list_that_grows(compile):
    gains = [1.0]
    it = iter(gains)

    def f(x):
        gain = next(it)
        gains.append(gain + 1.0)
        return x * gain
    yield from each(compile(f), vec())
    yield gains


# -------------------------------------------------------------------------------------------------- iterators of iterators
def enumerated(compile):
    it = enumerate(NINE, start=5)

    def f(x):
        n, value = next(it)
        return x * value + n
    return each(compile(f), vec())


def zipped_with_a_longer_one(compile):
    it = itertools.zip_longest([2.0, 2.0], NINE, fillvalue=3.0)

    def f(x):
        a, b = next(it)
        return x * a + b
    return each(compile(f), vec())


def mapped_over_two(compile):
    return taking(compile, map(pow, NINE, itertools.cycle([1, 2])))


def mapped_by_what_changes(compile):
    box = Thing(gain=2.0)

    def louder(n):
        return n * box.gain
    it = map(louder, itertools.count(1))

    def change():
        box.gain = 3.0
    return around(compile(lambda x: x * next(it)), change)


def filtered(compile):
    return taking(compile, filter(lambda n: n % 2, itertools.count()))


def sliced(compile):
    return taking(compile, itertools.islice(itertools.count(1), 2, None, 3))


def cycled(compile):
    return taking(compile, itertools.cycle([2.0, 3.0, 5.0]))


def counted_in_steps(compile):
    return taking(compile, itertools.count(0.5, 0.25))


def accumulated(compile):
    return taking(compile, itertools.accumulate(NINE, lambda a, b: a + 2 * b))


def taken_while(compile):
    it = itertools.takewhile(lambda n: n < 4, NINE)
    return each(compile(lambda x: x * next(it, -1.0)), vec())


def dropped_while(compile):
    return taking(compile, itertools.dropwhile(lambda n: n < 2, NINE))


def compressed(compile):
    return taking(compile, itertools.compress(itertools.count(), itertools.cycle([1, 0, 1])))


def starred(compile):
    return taking(compile, itertools.starmap(pow, [(n, 2) for n in NINE]))


def products(compile):
    it = itertools.product([2.0, 3.0], [1.0, 2.0], [0.0, 1.0])

    def f(x):
        a, b, c = next(it)
        return x * a * b + c
    return each(compile(f), vec())


def permuted(compile):
    it = itertools.permutations([1.0, 2.0, 3.0])
    return each(compile(lambda x: x * next(it)[0]), vec())


def pairwise(compile):
    it = itertools.pairwise(NINE)
    return each(compile(lambda x: x * (lambda p: p[0] * p[1])(next(it))), vec())


def grouped(compile):
    it = itertools.groupby(range(30), key=lambda n: n // 4)
    return each(compile(lambda x: x * sum(next(it)[1])), vec())


def teed(compile):
    a, b = itertools.tee(iter(NINE))
    f = compile(lambda x: x * next(a))
    for n in range(6):
        yield f(vec()), next(b) if n % 2 else None
    yield list(a), list(b)


def chained_from_lists(compile):
    return taking(compile, itertools.chain.from_iterable([n, -n] for n in NINE))


def pairs_of_one_iterator(compile):
    it = iter(range(1, 20))

    def f(x):
        a, b = next(zip(it, it))
        return x * a + b
    yield from each(compile(f), vec())
    yield next(it)


# ------------------------------------------------------------------------------------------------------------ ways to take
def taken_by_a_loop_that_breaks(compile):
    it = iter(NINE)

    def f(x):
        for value in it:
            if value % 2 == 0:
                break
        return x * value
    yield from each(compile(f), vec(), calls=4)
    yield list(it)


def taken_two_at_a_time(compile):
    it = iter(range(1, 20))
    return each(compile(lambda x: x * sum(itertools.islice(it, 2))), vec())


def taken_by_membership(compile):
    it = iter(range(20))
    box = Thing(n=0)

    def f(x):
        box.n += 3
        return x * 2.0 if box.n in it else x * 3.0
    yield from each(compile(f), vec())
    yield list(it)


def taken_all_at_once(compile):
    """The first call gets everything, all others nothing."""
    it = iter(NINE)
    yield from each(compile(lambda x: x * sum(it)), vec())


def taken_until_there_is_no_more(compile):
    it = iter([2.0, 3.0])

    def f(x):
        try:
            return x * next(it)
        except StopIteration:
            return x * -1.0
    return each(compile(f), vec())


def taken_by_unpacking(compile):
    it = iter([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0], [9.0, 1.0], [2.0, 2.0], []])

    def f(x):
        (a, b), = itertools.islice(it, 1)
        return x * a + b
    yield from each(compile(f), vec())
    yield list(it)


def taken_with_any(compile):
    it = iter([0, 0, 1, 0, 1, 1, 0, 0, 1, 0])

    def f(x):
        return x * 2.0 if any(it) else x * 3.0
    yield from each(compile(f), vec())


def iterator_as_argument(compile):
    f = compile(lambda x, it: x * next(it))
    it = iter(NINE)
    yield from each(f, vec(), it)
    yield f(vec(), iter(NINE)), next(it)


def iterator_replaced_when_empty(compile):
    box = Thing(it=iter([2.0, 3.0]), epochs=0)

    def f(x):
        for value in box.it:
            return x * value
        box.it = iter([2.0, 3.0])
        box.epochs += 1
        return x * next(box.it)
    yield from each(compile(f), vec(), calls=8)
    yield box.epochs


# ------------------------------------------------------------------------------------------------------------- generators
def generator_with_state(compile):
    def fibonacci():
        a, b = 1, 1
        while True:
            yield a
            a, b = b, a + b
    return taking(compile, fibonacci())


def generator_expression(compile):
    box = Thing(gain=2.0)
    it = (n * box.gain for n in NINE)

    def change():
        box.gain = 3.0
    return around(compile(lambda x: x * next(it)), change)


def generator_sent_to(compile):
    def average():
        total, count = 0.0, 0
        while True:
            value = yield total / max(count, 1)
            total, count = total + value, count + 1
    mean, box = average(), Thing(n=0.0)
    next(mean)

    def f(x):
        box.n += 1.0
        return x * mean.send(box.n)
    return each(compile(f), vec())


def generator_thrown_at(compile):
    def patient():
        thrown = 0
        while True:
            try:
                yield thrown
            except ValueError:
                thrown += 1
    it = patient()
    next(it)
    yield from each(compile(lambda x: x * it.throw(ValueError())), vec())
    yield next(it)


def generator_closed(compile):
    log = []

    def source():
        try:
            yield 2.0
        finally:
            log.append("closed")

    def f(x):
        it = source()
        gain = next(it)
        it.close()
        return x * gain
    yield from each(compile(f), vec())
    yield log


def generator_that_makes_tensors(compile):
    def batches():
        for n in itertools.count(1):
            yield vec() * n
    it = batches()
    return each(compile(lambda x: x + next(it)), vec())


def generator_of_generators(compile):
    def inner(n):
        yield n
        yield n + 0.5

    def outer():
        for n in itertools.count(1):
            yield from inner(n)
    return taking(compile, outer())


def generator_made_in_the_call(compile):
    box = Thing(stop=2)

    def upto(n):
        yield from range(1, n + 1)
        box.stop += 1
    yield from each(compile(lambda x: x * sum(upto(box.stop))), vec())
    yield box.stop


def coroutine_stepped(compile):
    async def work(n):
        await asyncio.sleep(0)
        done.append(n)
        return float(len(done))
    done = []
    yield from each(compile(lambda x: x * asyncio.run(work(1))), vec(), calls=5)
    yield done
