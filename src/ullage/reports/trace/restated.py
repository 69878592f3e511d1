"""TALP's printed efficiencies held against its raw times: which of them don't follow, and why where that is known.

TALP prints two decimals. Each is compared with the value that the raw times give by the definitions of this project's trees
(Ullage equations, section 5). Where they differ by more than the rounding, TALP's own formulas are tried on TALP's own sums:
if one of them gives the printed value, the difference is one of definition (or of a known mistake in TALP's sums) and is
explained; if none does, the file contradicts itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ullage.errors import harmless
from ullage.metrics.metric import METRICS
from ullage.reports.trace.talp_formulas import FORMULAS, TREES, TalpSums
from ullage.totals import Region
from ullage.views.numbers import percent

ROUNDING = 0.005 + 1e-6  # two decimals, and TALP's single precision
UNSEEN = 0.02  # of CPUs × elapsed; more is said


@dataclass(frozen=True)
class Restated:
    """An efficiency that TALP printed and that its raw times don't give. `why` is empty when nothing known explains it.

    `recomputed` is None where the raw times give no value.
    """

    region: str
    key: str
    stated: float
    recomputed: float | None
    why: str = ""


@dataclass(frozen=True)
class Restatement:
    """How many printed efficiencies were compared, those that differ, and what else the raw times don't account for."""

    compared: int
    rows: tuple[Restated, ...]
    notes: tuple[str, ...]

    @property
    def agree(self) -> int:
        """How many of the printed efficiencies follow from the raw times."""
        return self.compared - len(self.rows)

    @property
    def explained(self) -> int:
        """How many differ by their definition alone."""
        return len(self.rows) - len(self.contradictions)

    @property
    def contradictions(self) -> tuple[Restated, ...]:
        """The differences that no definition of TALP's explains: the file was edited, or TALP measured something impossible."""
        return tuple(row for row in self.rows if not row.why)


def restated(regions: Iterable[Region]) -> Restatement:
    """Return how the efficiencies that TALP printed compare with what its raw times give, for every region."""
    compared, rows, unseen = 0, [], []
    for region in regions:
        keys = [key for key in region.stated if key in FORMULAS and _applies(region, key)]
        compared += len(keys)
        rows += [row for key in keys if (row := _row(region, key)) is not None]
        seen = _seen(region)
        if seen is not None and abs(seen - 1) > UNSEEN:
            unseen.append(f"{harmless(region.name)}: TALP's times add up to {percent(seen)} of CPUs × elapsed time")
    if len(unseen) > 1:
        unseen = [f"{unseen[0]}; in {len(unseen):,} regions they are more than {percent(UNSEEN)} off"]
    return Restatement(compared, tuple(rows), tuple(unseen))


def _applies(region: Region, key: str) -> bool:
    """Return whether an efficiency means anything here; TALP prints 0.00 or 1.00 where there is no GPU or no useful time."""
    if not region.given.get("usefulTime"):
        return False
    return (
        region.device is not None if key.startswith("gpu") else key != "deviceOffloadEfficiency" or bool(region.given.get("gpuRuntimeTime"))
    )


def _row(region: Region, key: str) -> Restated | None:
    stated, ours = region.stated[key], recomputed(region, key)
    if ours is not None and abs(ours - stated) <= ROUNDING:
        return None
    given = TalpSums(region.given)
    values = [(formula.function(given), formula.why) for formula in FORMULAS[key]]
    first = next((value for value, _ in values if value is not None), None)
    why = next((why for value, why in values if value is not None and abs(value - stated) <= ROUNDING), None)
    if why is not None and ours is None:
        return None  # a factor of TALP's that the trees don't have, and that follows from the raw times
    if ours is None and first is None:  # TALP prints 0.00 for what it can't compute
        return Restated(region.name, key, stated, None, "the raw times don't give it") if stated else None
    if why and key in _THREADED and _serialisation_repeated(region):
        why = f"{why}; and its serialisation time, of which these were computed, repeats the scheduling time"
    return Restated(region.name, key, stated, ours if ours is not None else first, why or "")


_THREADED = ("parallelEfficiency", *(key for key in FORMULAS if key.startswith("omp")))


def _serialisation_repeated(region: Region) -> bool:
    """Return whether TALP's sum of the serialisation time is not that of its processes but the scheduling time once more."""
    serial = region.given.get("ompSerializationTime")
    own = region.host.openmp_serialisation_time if region.host else None
    return own is not None and serial != own and serial == region.given.get("ompSchedulingTime")


def recomputed(region: Region, key: str) -> float | None:
    """Return one of TALP's efficiencies by the trees' definitions, from a region's sums; None where they don't give it."""
    name = TREES.get(key)
    totals = region.device if key.startswith("gpu") else region.host
    if name is None or totals is None:
        return None
    metric, sums = METRICS[name], totals.sums()
    if any(parameter not in sums for parameter in metric.parameters):
        return None
    value = metric.function(**{parameter: sums[parameter] for parameter in metric.parameters})
    return None if value is None else float(value)


def _seen(region: Region) -> float | None:
    """Return how much of CPUs × elapsed time TALP's times account for, None without any."""
    host, given = region.host, TalpSums(region.given)
    if host is None:
        return None
    seen = host.useful_time + host.offload_time + host.parallel_time + given["mpiTime"] + given["mpiWorkerIdleTime"]
    return seen / (host.processes * host.elapsed)
