"""A replay event by event in plain Python and exact fractions, for `test_replay.py`; imports nothing of ours."""

from __future__ import annotations

from fractions import Fraction


def timeline(count, edges, groups, durations, released=None):
    """Return (start, end) of each operation. `edges` are (before, after); `groups` are lists of operations, each in one at most.

    A clock moves from event to event: an operation starts once all it waits for has ended, its own duration begins once all of its
    group have started.
    """
    group_of = {}
    for members in groups:
        for member in members:
            group_of[member] = members
    waits = {op: [before for before, after in edges if after == op] for op in range(count)}
    released = released or [Fraction(0)] * count
    start, end = [None] * count, [None] * count
    now = min(released, default=Fraction(0))
    while any(moment is None for moment in end):
        moved = True
        while moved:
            moved = False
            for op in range(count):
                if start[op] is None and released[op] <= now and all(end[w] is not None and end[w] <= now for w in waits[op]):
                    start[op], moved = now, True
            for op in range(count):
                mates = group_of.get(op, [op])
                if end[op] is None and all(start[m] is not None for m in mates):
                    end[op], moved = now + durations[op], True
        later = [t for t in (*end, *released) if t is not None and t > now]
        if not later and any(moment is None for moment in end):
            raise ValueError("a circle")
        now = min(later, default=now)
    return start, end
