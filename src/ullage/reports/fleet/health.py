"""What GPUs say of their own health within a window: errors that came to be, and the Xids that the driver told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.field import HEALTH
from ullage.findings.fleet_evidence import SickGpu
from ullage.job_names import separate_names
from ullage.sums.held import empty
from ullage.units import HOUR_MS

STANDS = ("remap_failed",)  # says that a GPU is sick for as long as it stands; of the others only what is new within the window counts
_WHERE = ("cluster", "host", "gpu", "index")


def sick_gpus(samples: Any) -> tuple[SickGpu, ...]:
    """Return the GPUs that told of errors within these samples (an Ibis table of `tables.SETTLED`); nothing is read where none does."""
    told = [name for name in HEALTH if not empty(samples, name)]
    if not told:
        return ()
    ends = {f"{name}_{end}": getattr(samples[name], end)() for name in told for end in ("min", "max")}
    found = samples.group_by("gpu").aggregate(**ends).to_pyarrow()
    changed = [
        gpu
        for gpu, row in zip(found["gpu"].to_pylist(), found.to_pylist(), strict=True)
        if any((row[f"{name}_max"] or 0) > (0 if name in STANDS else row[f"{name}_min"] or 0) for name in told)
    ]
    if not changed:
        return ()
    columns = (*_WHERE, "job", "time", "span_ms", *told)
    table = samples.filter(samples.gpu.isin(changed)).select(*columns).order_by("gpu", "time").to_pyarrow()
    return tuple(one for rows in _by_gpu(table) if (one := _sick(rows, told)) is not None)


def _by_gpu(table: pa.Table) -> Iterator[pa.Table]:
    gpus = np.array(table["gpu"].to_pylist(), dtype=object)
    edges = [0, *(np.flatnonzero(gpus[1:] != gpus[:-1]) + 1).tolist(), len(gpus)]
    yield from (table.slice(start, end - start) for start, end in pairwise(edges))


def _sick(rows: pa.Table, told: list[str]) -> SickGpu | None:
    """Return what one GPU's samples, in the order of time, say; None where nothing came to be."""
    values = {name: np.asarray(rows[name].to_numpy(zero_copy_only=False), dtype=float) for name in told}
    grown = {name: _growth(column, standing=name in STANDS) for name, column in values.items()}
    new = np.any([growth > 0 for growth in grown.values()], axis=0)
    if not new.any():
        return None
    first = int(np.argmax(new))
    codes = {int(code) for code in values["xid"][grown["xid"] > 0]} if "xid" in values else set()
    span = np.asarray(rows["span_ms"].to_numpy(zero_copy_only=False), dtype=float)
    jobs = {name for word in set(rows["job"].slice(first).to_pylist()) - {None} for name in separate_names(word)}
    where = {name: rows[name][first].as_py() for name in _WHERE}
    return SickGpu(
        **where,
        hours=float(span[first:].sum()) / HOUR_MS,
        xids=tuple(sorted(codes)),
        errors={name: float(np.sum(growth)) for name, growth in grown.items() if name != "xid" and growth.any()},
        jobs=tuple(sorted(jobs)),
    )


def _growth(values: npt.NDArray[np.float64], *, standing: bool) -> npt.NDArray[np.float64]:
    """Return by how much each reading is more than the one before it that is known; of one that `standing` tells all, the reading itself.

    A count that begins anew grows by what it is then; the last Xid is told anew when it is another one.

    >>> _growth(np.array([3.0, 3, np.nan, 5, 1]), standing=False).tolist()
    [0.0, 0.0, 0.0, 2.0, 1.0]
    """
    if standing:
        return np.nan_to_num(values)
    known = np.flatnonzero(~np.isnan(values))
    result = np.zeros(len(values))
    before, now = values[known[:-1]], values[known[1:]]
    result[known[1:]] = np.where(now < before, now, now - before)
    return result
