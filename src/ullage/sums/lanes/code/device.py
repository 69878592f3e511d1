"""Time of kernels by the code that launched them: what was innermost on the launching thread when the call was made. Gradients count for
the module whose forward pass they are of, where the trace tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ullage.arrays import chosen
from ullage.sums.lanes.code.gradients import Gradients
from ullage.sums.lanes.code.levels import CodeLevel
from ullage.sums.lanes.code.times import CodeTimes, code_times
from ullage.sums.lanes.gather import KIND, Capture, Codes
from ullage.sums.lanes.launches import launches, only
from ullage.sums.lanes.observed import time_seen
from ullage.sums.lanes.spans import Spans, Times

_KERNELS = tuple(KIND[k] for k in ("kernel", "collective", "graph"))


@dataclass(frozen=True)
class DeviceCode:
    """Time of kernels in ns, summed over streams and devices: in `all`, of those whose launch was not recorded, and by level.

    At each level `rows + outside + unlaunched` is `all`; a row counts kernels.
    """

    all: int = 0
    unlaunched: int = 0
    levels: dict[str, CodeTimes] = field(default_factory=dict)

    @property
    def launched(self) -> int:
        """The time of kernels whose launch was recorded."""
        return self.all - self.unlaunched


def device_by_code(capture: Capture, levels: Mapping[str, CodeLevel], seen: Mapping[int, Spans]) -> DeviceCode:
    """Return the time of each device's kernels, while it is looked at, by their code; of one across an edge the time inside counts."""
    rows = capture.device
    time = time_seen(rows, seen)
    inside = (time >= 0) & np.isin(rows.kind, _KERNELS)
    rows, time = only(rows, inside, "process", "correlation"), time[inside]
    put = launches(capture.calls, rows)
    whole, known = int(time.sum()), int(time[put.known].sum())
    process, thread, start, time = (chosen(values, put.known) for values in (rows.process, put.thread, put.start, time))
    del rows, put  # what levels take stands beside as little as may be: there may be millions of kernels
    gradients = Gradients(capture.host)
    origin = gradients.origin(process, thread, start)
    backward = np.where(origin.gradients, time, 0) if origin.gradients.any() else None
    found = {}
    for name, level in levels.items():
        own = name != "annotation"
        code = level.around(process, thread, start) if own else gradients.layers(level, process, thread, start, origin)
        found[name] = _by(level, code, time, backward, known)
    return DeviceCode(whole, whole - known, found)


def _by(level: CodeLevel, code: Codes, time: Times, backward: Times | None, whole: int) -> CodeTimes:
    places = np.flatnonzero(code >= 0)
    behind = None if backward is None else backward[places]
    return code_times(level.names, code[places], places, time[places], whole - int(time[places].sum()), behind)
