"""The GPUs of a job: where each is, how long it was observed, and what it did there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from ullage.audit.trust import Verdict
from ullage.reports.fleet.rated import Rated, weighted_means
from ullage.sums.ledger import CODES
from ullage.units import HOUR_MS

_DEVICE = ("cluster", "host", "gpu", "mig")


@dataclass(frozen=True)
class GpuOfJob:
    """One GPU (or MIG instance) of a job, in the time in which the job held it.

    `gpu_hours` were observed, `idle_hours` of them held and idle. `ofu` is over trusted time, the other means over all; `memory` is the
    most device memory that was in use (B), `memory_size` what the GPU has. `verdict` is that on its series in the whole window.
    """

    host: str | None
    index: int | None
    gpu: str | None
    mig: str | None
    model: str | None
    gpu_hours: float
    idle_hours: float
    ofu: float | None
    gpu_util: float | None
    sm_active: float | None
    power: float | None
    memory: float | None
    memory_size: float | None
    verdict: str = "ok"

    @property
    def place(self) -> str:
        """Where it is, as people look for it."""
        number = "" if self.index is None else f"GPU {self.index}"
        return " ".join(filter(None, [self.host, number, self.mig and f"instance {self.mig}"])) or self.gpu or "unknown"


def gpus_of_job(
    rated: Rated, good: Rated, verdicts: Mapping[tuple[str, str | None], Verdict], memory: Mapping[tuple[str | None, ...], float]
) -> tuple[GpuOfJob, ...]:
    """Return the GPUs of a job's rows by host and index; `good` are the trusted ones, `memory` the most in use by (gpu, mig)."""
    codes, firsts = rated.alike(*_DEVICE)
    count = len(firsts)
    names = rated.sums.select(["host", "index", "gpu", "mig", "model"]).take(pa.array(firsts)).to_pylist()
    hours = rated.column("span_ms") * rated.weight / HOUR_MS
    held = np.bincount(codes, hours, count)
    idle = np.bincount(codes, np.where(rated.column("owner") == CODES["held_idle"], hours, 0.0), count)
    means = {
        name: weighted_means(rated.column(f"{name}_sum"), rated.column(f"{name}_ms"), rated.weight, codes, count)
        for name in ("gpu_util", "sm_active", "power")
    }
    ofus = _ofu_by_device(good)
    found = []
    for number, row in enumerate(names):
        device = (row["gpu"], row["mig"])
        verdict = verdicts.get(device)
        chip = int(rated.chip[firsts[number]])
        found.append(
            GpuOfJob(
                host=row["host"],
                index=row["index"],
                gpu=row["gpu"],
                mig=row["mig"],
                model=row["model"],
                gpu_hours=float(held[number]),
                idle_hours=float(idle[number]),
                ofu=ofus.get(device),
                gpu_util=_known(means["gpu_util"][number]),
                sm_active=_known(means["sm_active"][number]),
                power=_known(means["power"][number]),
                memory=memory.get(device),
                memory_size=float(rated.chips[chip].memory) if chip >= 0 and row["mig"] is None else None,
                verdict="ok" if verdict is None else verdict.verdict,
            )
        )
    return tuple(sorted(found, key=_order))


def _order(one: GpuOfJob) -> tuple[str, int, str, str]:
    return (one.host or "", -1 if one.index is None else one.index, one.gpu or "", one.mig or "")


def _ofu_by_device(good: Rated) -> dict[tuple[str | None, str | None], float]:
    codes, firsts = good.alike("gpu", "mig")
    means = weighted_means(good.ofu_part, good.ofu_time, good.weight, codes, len(firsts))
    names = good.sums.select(["gpu", "mig"]).take(pa.array(firsts)).to_pylist()
    return {(row["gpu"], row["mig"]): float(mean) for row, mean in zip(names, means, strict=True) if not np.isnan(mean)}


def most_memory(samples: Any) -> dict[tuple[str | None, ...], float]:
    """Return the most device memory (B) that was in use on each (gpu, mig) of some samples, where any told."""
    told = samples.filter(samples.memory_used.notnull()).group_by("gpu", "mig").agg(most=samples.memory_used.max()).to_pyarrow()
    columns = (told["gpu"].cast(pa.string()).to_pylist(), told["mig"].cast(pa.string()).to_pylist(), told["most"].to_pylist())
    return {(gpu, mig): float(most) for gpu, mig, most in zip(*columns, strict=True)}


MOST_HOSTS = 4  # that a line names


def places_in_words(gpus: Sequence[GpuOfJob]) -> str:
    """Return where the GPUs of a job are: hosts that hold the same numbers are named together.

    >>> gpu = GpuOfJob("n1", 0, "a", None, None, 1.0, 0.0, None, None, None, None, None, None)
    >>> from dataclasses import replace
    >>> places_in_words([gpu, replace(gpu, index=1), replace(gpu, host="n2"), replace(gpu, host="n2", index=1), replace(gpu, host="n3")])
    'n1, n2: GPU 0-1; n3: GPU 0'
    """
    hosts: dict[str, list[str]] = {}
    for host, own in groupby(gpus, key=lambda one: one.host):
        hosts.setdefault(_numbers([*own]), []).append(host or "no host")
    return "; ".join(f"{_listed(names)}: {numbers}" if numbers else _listed(names) for numbers, names in hosts.items())


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_HOSTS
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:MOST_HOSTS])} and {more:,} more hosts"


def _numbers(gpus: Sequence[GpuOfJob]) -> str:
    """Return the numbers of a host's GPUs as ranges; instances of one are named with it."""
    whole = sorted({one.index for one in gpus if one.index is not None and one.mig is None})
    sliced = sorted({f"{one.index} instance {one.mig}" if one.index is not None else f"instance {one.mig}" for one in gpus if one.mig})
    ranges: list[list[int]] = []
    for number in whole:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = [f"{first}-{last}" if last > first else str(first) for first, last in ranges] + sliced
    return f"GPU {','.join(words)}" if words else ""


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
