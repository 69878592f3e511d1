"""Which operator of the forward pass each of autograd's belongs to, in a PyTorch profile.

An operator that autograd will differentiate bears a "Sequence number", and so does what computes its gradients, with a "Fwd thread id"
above 0 that names the thread of the forward pass (torch/csrc/autograd/profiler_kineto.cpp; its number is PyTorch's own, no thread of the
file). Numbers count up on each thread; of operators within one another that bear the same, the one that began last made the node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ullage.traces.kineto.part import NOT_KNOWN, KinetoPart, Numbers, Times, numbers
from ullage.traces.kineto.timed import Mask, TimedEvents

CLEARLY = 2  # times as many numbers as any other thread must have those of a thread of the forward pass, to be that thread


def sequenced(operators: TimedEvents) -> KinetoPart | None:
    """Return the operators of a chunk that bear a number of autograd's; None without any."""
    sequence = numbers([a.order for a in operators.args] if operators else [])
    borne = sequence >= 0
    if not borne.any():
        return None
    found: Numbers = {
        "process": operators.process,
        "thread": operators.thread,
        "sequence": sequence,
        "forward": numbers([a.forward for a in operators.args]),
    }
    return KinetoPart("operator", operators.start, operators.end, found, {}).where(borne)


def gradients(parts: Sequence[KinetoPart]) -> list[KinetoPart]:
    """Return what computed gradients (`backward`), and the operators of which (`forward`): a pair bears one `sequence`, drawn anew."""
    if not parts:
        return []
    columns = {name: np.concatenate([part.numbers[name] for part in parts]) for name in parts[0].numbers}
    start, end = np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts])
    back = columns["forward"] > 0
    maker = np.full(len(start), NOT_KNOWN, np.int64)
    for process in np.unique(columns["process"][back]):
        mine = columns["process"] == process
        for thread in np.unique(columns["forward"][mine & back]):
            behind = np.flatnonzero(mine & back & (columns["forward"] == thread))
            ahead = _forward_pass(columns, np.flatnonzero(mine & ~back), behind)
            maker[behind] = _last_begun(columns["sequence"], start, ahead, behind)
    behind = np.flatnonzero(maker >= 0)
    ahead, link = np.unique(maker[behind], return_inverse=True)
    rows = (("forward", ahead, np.arange(len(ahead))), ("backward", behind, link))
    return [
        KinetoPart(
            kind,
            start[at],
            end[at],
            {"process": columns["process"][at], "thread": columns["thread"][at], "sequence": number},
        )
        for kind, at, number in rows
        if len(at)
    ]


def _forward_pass(columns: Numbers, ahead: Times, behind: Times) -> Times:
    """Return the operators of the thread that some gradients are of, none where several threads may be it: each counts from 0."""
    wanted = np.isin(columns["sequence"][ahead], columns["sequence"][behind])
    threads = columns["thread"][ahead]
    several, at = np.unique(threads[wanted], return_inverse=True)
    if not len(several):
        return ahead[:0]
    has = [len(np.unique(columns["sequence"][ahead][wanted][at == number])) for number in range(len(several))]
    ranked = sorted(has, reverse=True)
    sure = len(ranked) == 1 or ranked[0] >= CLEARLY * ranked[1]
    return ahead[threads == several[int(np.argmax(has))]] if sure else ahead[:0]


def _last_begun(sequence: Times, start: Times, ahead: Times, behind: Times) -> Times:
    """Return for each of `behind` which of `ahead` bears its number and began last, before it; `NOT_KNOWN` where none did."""
    both = np.concatenate((ahead, behind))
    is_behind: Mask = np.arange(len(both)) >= len(ahead)
    order = np.lexsort((is_behind, start[both], sequence[both]))
    last = np.maximum.accumulate(np.where(is_behind[order], -1, np.arange(len(order))))
    found = np.full(len(both), NOT_KNOWN, np.int64)
    sought = np.flatnonzero(is_behind[order] & (last >= 0))
    maker = both[order[last[sought]]]
    same = sequence[maker] == sequence[both[order[sought]]]
    found[order[sought[same]]] = maker[same]
    return found[len(ahead) :]
