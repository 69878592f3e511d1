"""In which layer of its program a host thread is: the regions that the user named and the modules that are open, as a path.

A module's running number is left out ("Linear_17" is "Linear"), so that layers that repeat are one layer.
"""

from __future__ import annotations

import re

import numpy as np

from ullage.sums.lanes.code.nests import NOBODY, Nest
from ullage.sums.lanes.gather import KIND, Codes, LaneRows

DEEPEST = 8  # innermost names kept of a layer's path
BETWEEN = "/"
_NUMBER = re.compile(r"_\d+$")


class Paths:
    """The paths of a capture's layers: a code for each, in the order in which they were first seen."""

    def __init__(self, words: list[str]) -> None:
        self.names: list[str] = []
        self._words = words
        self._codes: dict[tuple[str, ...], int] = {}
        self._paths: list[tuple[str, ...]] = []
        self._below: dict[tuple[int, int, int], int] = {}

    def coded(self, rows: LaneRows, found: Nest) -> Codes:
        """Return the path of each of a thread's ranges."""
        codes = [NOBODY] * len(rows)
        name, kind, parent = rows.name.tolist(), rows.kind.tolist(), found.parent.tolist()
        for place in np.lexsort((-rows.end, rows.start)).tolist():  # what encloses others stands before them
            outer = codes[parent[place]] if parent[place] != NOBODY else NOBODY
            step = (outer, name[place], kind[place])
            code = self._below.get(step)
            codes[place] = self._add(step) if code is None else code
        return np.array(codes, np.int32)

    def _add(self, step: tuple[int, int, int]) -> int:
        outer, name, kind = step
        around = self._paths[outer] if outer != NOBODY else ()
        path = (*around, _label(self._words[name] if name >= 0 else "", kind))[-DEEPEST:]
        code = self._codes.setdefault(path, len(self._paths))
        if code == len(self._paths):
            self._paths.append(path)
            self.names.append(BETWEEN.join(path))
        self._below[step] = code
        return code


def _label(name: str, kind: int) -> str:
    """Return what a range is called.

    >>> _label("Linear_17", KIND["module"]), _label("stage_2", KIND["region"])
    ('Linear', 'stage_2')
    """
    return (_NUMBER.sub("", name) if kind == KIND["module"] else name) or "(unnamed)"
