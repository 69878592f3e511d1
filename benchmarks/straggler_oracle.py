"""Which planted faults show in time at all: an oracle that knows the kind, the GPUs and the time of a fault of `blind_fleets`.

The oracle knows in which counter a fault of this kind shows, looks only at the faulty GPUs and only at the readings from the onset to the
limit (of the GPUs beside them also at the next one), and compares them with stretches of equal length of the job's healthy GPUs while the
job works. It finds the fault if their mean, or the last of them, is above 99 of 100 of these. It need not say who is slow, why, or when.
It looks at one counter, so a detector that looks at several may find what it does not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from blind_fleets import EPOCH_MS, LATE, THROTTLING, BlindFleet, PlantedFault

Array = npt.NDArray[np.float64]
Course = tuple[Array, Array, Array]  # when a GPU was read (s), what it showed, and whether its job worked
WORKS = 0.45  # of a GPU's usual tensor activity: below it its job pauses
SURE = 0.99  # of the stretches of healthy GPUs


def finds_in_time(fleet: BlindFleet, fault: PlantedFault, scrapes: int, seconds: float) -> bool:
    """Return whether the oracle finds a fault within `scrapes` readings after its onset, or within `seconds` where those are more."""
    courses = _beside(_courses(fleet, fault))
    struck = [_means(courses[gpu], fault, scrapes, seconds) for gpu in fault.gpus if gpu in courses]
    if fault.kind == "NVLink":  # healthy links send nothing again
        return any(len(after) and after.sum() > 0 for after, _ in struck)
    seen = [(after, before) for after, before in struck if len(after)]
    if not seen:
        return False
    usual = [np.median(before) if len(before) else 0.0 for _, before in seen]
    mean = np.mean([after.mean() - level for (after, _), level in zip(seen, usual, strict=True)])
    last = np.mean([after[-1] - level for (after, _), level in zip(seen, usual, strict=True)])
    healthy = [course for gpu, course in courses.items() if gpu not in fault.gpus]
    return bool(mean > _highest(healthy, max(len(after) for after, _ in seen)) or last > _highest(healthy, 1))


def _highest(courses: list[Course], length: int) -> float:
    """Return what 99 of 100 stretches of a length stay below; infinite where there are none."""
    pieces = np.concatenate([*(_stretches(values[works > 0], length) for _, values, works in courses), np.empty(0)])
    return float(np.quantile(pieces, SURE)) if len(pieces) else np.inf


def _means(course: Course, fault: PlantedFault, scrapes: int, seconds: float) -> tuple[Array, Array]:
    """Return what a faulty GPU showed after the onset, to the limit, and what it showed before it was faulty."""
    times, values, _ = course
    after = np.flatnonzero(times > fault.onset)
    limit = max(scrapes, int(np.count_nonzero(times[after] <= fault.onset + seconds)))
    return values[after[:limit]], values[times < fault.first]


def _stretches(values: Array, length: int) -> Array:
    """Return the means of all stretches of a length, beside the usual value."""
    if len(values) < length:
        return np.empty(0)
    return np.convolve(values, np.full(length, 1 / length), "valid") - np.median(values)


def _courses(fleet: BlindFleet, fault: PlantedFault) -> dict[tuple[str, str], Course]:
    """Return what each GPU of a job showed in the counter that tells of a fault, by model and GPU: more is worse."""
    names = ("job", "gpu", "model", "time", "sm_clock", "tensor_active", "sm_active", "gr_active", "nvlink_replays")
    column = {name: np.asarray(fleet.samples[name].cast("int64") if name == "time" else fleet.samples[name].to_pylist()) for name in names}
    own = column["job"] == fault.job
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = SHOWS[fault.kind]({name: values[own] for name, values in column.items()})
    times = (column["time"][own] - EPOCH_MS) / 1000
    keys = list(zip(column["model"][own].tolist(), column["gpu"][own].tolist(), strict=True))
    known = np.isfinite(shown)
    rows = {key: np.flatnonzero(known & np.array([key == one for one in keys])) for key in set(keys)}
    tensor = column["tensor_active"][own].astype(float)
    return {key: (times[at], shown[at], tensor[at] > WORKS * np.median(tensor[at])) for key, at in rows.items() if len(at)}


def _beside(courses: dict[tuple[str, str], Course]) -> dict[str, Course]:
    """Return each GPU's course beside the median of the others of its model at the same times; itself where there are no others."""
    beside = {}
    for (model, gpu), (times, values, works) in courses.items():
        others = [np.interp(times, course[0], course[1]) for key, course in courses.items() if key[0] == model and key[1] != gpu]
        beside[gpu] = (times, values - (np.median(others, axis=0) if others else 0), works)
    return beside


SHOWS: dict[str, Callable[[dict[str, Array]], Array]] = {
    **dict.fromkeys(THROTTLING, lambda one: -np.log(one["sm_clock"].astype(float))),
    **dict.fromkeys(LATE, lambda one: -one["gr_active"].astype(float)),
    "memory retries": lambda one: np.log(one["sm_active"].astype(float) / one["tensor_active"].astype(float)),
    "NVLink": lambda one: np.diff(one["nvlink_replays"].astype(float), prepend=0.0).clip(0),
}
