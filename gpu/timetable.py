"""How the time of a run is dealt out: every check its least, and what is left to those that can use more."""

from __future__ import annotations

from collections.abc import Sequence

from gpu.check import Check


def share(check: Check, later: Sequence[Check], left: float) -> float | None:
    """Return how many of the seconds that are `left` a check gets before `later` ones; None when it does not fit.

    Each gets its `least`; what is left beyond that goes to those that can use more, in proportion to how much more. Where not all
    fit, the first come first served.

    >>> one = lambda least, seconds: Check("x", seconds, False, {}, {}, lambda machine: None, least)
    >>> share(one(10, 10), [one(20, 20)], left=100), share(one(10, 50), [one(20, 20)], left=60), share(one(10, 10), [], left=9)
    (10, 40.0, None)

    Of 60 seconds 20 are beyond the least; one can use 40 more, the other 120, so they get 5 and 15 of them:

    >>> share(one(10, 50), [one(30, 150)], left=60)
    15.0
    """
    if check.least > left:
        return None
    wanting = [check, *later]
    beyond = left - sum(one.least for one in wanting)
    use = sum(one.seconds - one.least for one in wanting)
    if beyond <= 0 or use <= 0:
        return check.least
    return check.least + min(1.0, beyond / use) * (check.seconds - check.least)
