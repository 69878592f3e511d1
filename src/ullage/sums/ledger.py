"""The ledger: every GPU-second of a window has exactly one owner, so that the columns add up to GPUs x window.

- `job`: one job held the device, and the device did something
- `shared`: several jobs held it at once; counters can't tell whose the work was
- `held_idle`: one job held it, and nothing ran on it
- `free`: nobody held it, and nothing ran
- `unknown`: nobody told (no sample for that time), or something ran and no job is known for it
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

OWNERS = ("job", "shared", "held_idle", "free", "unknown")
Array = npt.NDArray[np.float64]


def owners(held: npt.NDArray[np.bool_], sums: Mapping[str, Array]) -> dict[str, Array]:
    """Return, for each row of device sums, its milliseconds by owner; a row's owners add up to its `span_ms`.

    `held` says whether the row's job is known; `sums` has `span_ms`, `idle_ms`, `shared_ms`, `shared_idle_ms`.

    A job held a GPU for 100 ms, of which 30 were idle:

    >>> row = {name: np.array([value]) for name, value in dict(span_ms=100.0, idle_ms=30.0, shared_ms=0.0, shared_idle_ms=0.0).items()}
    >>> {owner: float(time[0]) for owner, time in owners(np.array([True]), row).items()}
    {'job': 70.0, 'shared': 0.0, 'held_idle': 30.0, 'free': 0.0, 'unknown': 0.0}
    """
    alone_idle = sums["idle_ms"] - sums["shared_idle_ms"]
    none = np.zeros_like(sums["span_ms"])
    return {
        "job": np.where(held, sums["span_ms"] - sums["shared_ms"] - alone_idle, none),
        "shared": np.where(held, sums["shared_ms"], none),
        "held_idle": np.where(held, alone_idle, none),
        "free": np.where(held, none, sums["idle_ms"]),
        "unknown": np.where(held, none, sums["span_ms"] - sums["idle_ms"]),
    }
