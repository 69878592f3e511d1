"""Where the forward pass was when it did what gradients are now computed of: autograd's work belongs to the module of that operator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.code.levels import CodeLevel, by_thread
from ullage.sums.lanes.gather import Codes, LaneRows
from ullage.sums.lanes.spans import Times

_DEEPEST = 4  # gradients of gradients that are followed back to the forward pass


class GradientOrigin(NamedTuple):
    """Of some launches: whether each computes `gradients`, and on which thread and when the forward pass did what they are of; of others
    their own thread and moment."""

    gradients: npt.NDArray[np.bool_]
    thread: Times
    moment: Times


class Gradients:
    """What computes gradients on which thread and when, and of what."""

    def __init__(self, host: LaneRows) -> None:
        behind, ahead = host.of("backward"), host.of("forward")
        order = np.argsort(ahead.sequence, kind="stable")
        self._ahead = ahead.where(order)
        links = LaneRows(behind.start, behind.end, name=behind.sequence.astype(np.int32))
        self._level = CodeLevel({who: links.where(at) for who, at in by_thread(behind.process, behind.thread)}, [], borrows=False)
        self._modules = _modules(host) if len(behind) else CodeLevel({}, [], borrows=False)

    def origin(self, process: Times, thread: Times, moment: Times) -> GradientOrigin:
        """Return where the forward pass was, of what is done on threads at moments."""
        gradients = np.zeros(len(moment), bool)
        for _ in range(_DEEPEST if len(self._level) else 0):
            link = self._level.around(process, thread, moment)
            at = np.minimum(np.searchsorted(self._ahead.sequence, link), len(self._ahead) - 1)
            known = (link >= 0) & (self._ahead.sequence[at] == link)
            if not known.any():
                break
            gradients |= known
            thread, moment = np.where(known, self._ahead.thread[at], thread), np.where(known, self._ahead.start[at], moment)
        return GradientOrigin(gradients, thread, moment)

    def layers(self, level: CodeLevel, process: Times, thread: Times, moment: Times, of: GradientOrigin) -> Codes:
        """Return the innermost range or module of what is done on threads at moments; of gradients that of the forward pass, where that
        was in a module: ranges alone may be of any part of a step."""
        own = level.around(process, thread, moment)
        if not of.gradients.any():
            return own
        inside = of.gradients & (self._modules.around(process, of.thread, of.moment) >= 0)
        return np.where(inside, level.around(process, of.thread, of.moment), own)


def _modules(host: LaneRows) -> CodeLevel:
    rows = host.of("module")
    return CodeLevel({who: rows.where(at) for who, at in by_thread(rows.process, rows.thread)}, [], borrows=False)
