"""The telemetry tree: OFU as a product of factors that an exporter's gauges give, no trace needed.

    OFU = load balance x activity x SM fill x tensor issue x clock

A bar is the mean over a job's GPUs, each weighted by its time; a maximum is over the GPUs' own means. The parent is the
product of its children, to rounding. Where a gauge is not exported its factor is merged with its neighbour and the
merged factor says so; it is never invented.

A mean over a maximum has a meaning only among GPUs that work on one thing together. So factors multiply inside a job, and above it what
they cost is added, in GPU time: `step_losses` gives the loss of every step in every row of a job, whose sum over any rows is what those
rows lose. A fleet's chain has two steps before a job's five: what nobody was given, and what was held and idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.metrics.metric import Value, metric, ratio

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@metric(unit="1", source="Ullage equations, section 6; after TALP paper, eq. 10")
def load_balance(mean_activity: Value, max_activity: Value) -> Value:
    """How evenly the engines of a job's GPUs are busy: 1 when all are equally busy, 1/m when one of m does it all.

    The work of the scheduler and of the sharding.

    >>> load_balance(mean_activity=0.4, max_activity=0.8)
    0.5
    """
    return ratio(mean_activity, max_activity)


@metric(unit="1", source="Ullage equations, section 6")
def activity(max_activity: Value) -> Value:
    """How much of the time the busiest GPU has anything to run: what is missing is the host, the data, the network.

    >>> activity(max_activity=0.8)
    0.8
    """
    return max_activity


@metric(unit="1", source="Ullage equations, section 6")
def sm_fill(mean_sm_active: Value, mean_activity: Value) -> Value:
    """How many of the SMs hold work while the engine is busy: small kernels and few blocks leave SMs empty.

    >>> sm_fill(mean_sm_active=0.45, mean_activity=0.6)
    0.75
    """
    return ratio(mean_sm_active, mean_activity)


@metric(unit="1", source="Ullage equations, section 6")
def tensor_issue(mean_tensor_active: Value, mean_sm_active: Value) -> Value:
    """How much of the SMs' occupied time the tensor pipes work: memory-bound kernels and poor GEMMs lower it.

    >>> tensor_issue(mean_tensor_active=0.3, mean_sm_active=0.6)
    0.5
    """
    return ratio(mean_tensor_active, mean_sm_active)


@metric(unit="1", source="Ullage equations, section 6")
def clock_efficiency(ofu: Value, mean_tensor_active: Value) -> Value:
    """The clock over the tensor clock, weighted by tensor activity: power and heat lower it.

    Above 1 where the SM clock passes the clock that the peak is stated at.

    >>> clock_efficiency(ofu=0.3, mean_tensor_active=0.5)
    0.6
    """
    return ratio(ofu, mean_tensor_active)


@dataclass(frozen=True)
class Factor:
    """One step of the chain: its key, what a person reads, its value, and which keys it stands for when merged."""

    name: str
    label: str
    value: float | None
    stands_for: tuple[str, ...]

    @property
    def whose(self) -> str:
        """Whose work it is; of a merged one each owner once.

        >>> Factor("load_balance_x_clock", "load balance × clock", 0.5, ("load_balance", "clock")).whose
        'the scheduler, the sharding; power, cooling'
        """
        return "; ".join(dict.fromkeys(WHOSE[name] for name in self.stands_for if name in WHOSE))


LABELS = {
    "not_allocated": "not allocated",
    "held_idle": "held idle",
    "load_balance": "load balance",
    "activity": "activity",
    "sm_fill": "SM fill",
    "tensor_issue": "tensor issue",
    "clock": "clock",
}

# Whose work a factor is: who can raise it.
WHOSE = {
    "not_allocated": "the scheduler, the demand",
    "held_idle": "the job's owner",
    "load_balance": "the scheduler, the sharding",
    "activity": "the host, the data, the network",
    "sm_fill": "kernel size",
    "tensor_issue": "kernel quality, memory-bound time",
    "clock": "power, cooling",
}


@dataclass(frozen=True)
class TelemetryTree:
    """OFU and the factors whose product it is, first to last."""

    ofu: float | None
    factors: tuple[Factor, ...]

    def factor(self, name: str) -> float | None:
        """Return the value of one factor, or None when it was not measured on its own."""
        return next((f.value for f in self.factors if f.stands_for == (name,)), None)

    def losses(self, gpu_hours: float) -> list[tuple[Factor, float]]:
        """Return each factor with the GPU-hours lost at its step, walking from full to OFU; they add up to the ullage."""
        left, losses = gpu_hours, []
        for factor in self.factors:
            if factor.value is None:
                continue
            losses.append((factor, left * (1 - factor.value)))
            left *= factor.value
        return losses

    def as_dict(self) -> dict[str, Any]:
        """Return the tree for JSON: a key per factor (null where merged), and `factors`, whose product is `ofu`."""
        flat: dict[str, Any] = {"ofu": self.ofu}
        flat |= {name: self.factor(name) for name in LABELS}
        flat["factors"] = [{"name": f.name, "label": f.label, "value": f.value} for f in self.factors]
        return flat


def tree(
    *,
    ofu: float | None,
    tensor: float | None,
    sm: float | None,
    sm_max: float | None,
    gr: float | None,
    gr_max: float | None,
    tensor_max: float | None,
) -> TelemetryTree:
    """Return the telemetry tree from means over GPUs (`gr`, `sm`, `tensor`) and the busiest GPU's own mean (`*_max`).

    A mean that is None was not exported: its factor merges with its neighbour.

    >>> chain = tree(ofu=0.27, tensor=0.3, sm=0.6, sm_max=0.7, gr=0.72, gr_max=0.8, tensor_max=0.4)
    >>> [(f.name, round(f.value, 3)) for f in chain.factors]
    [('load_balance', 0.9), ('activity', 0.8), ('sm_fill', 0.833), ('tensor_issue', 0.5), ('clock', 0.9)]
    >>> [f.label for f in tree(ofu=0.27, tensor=0.3, sm=None, sm_max=None, gr=0.72, gr_max=0.8, tensor_max=0.4).factors]
    ['load balance', 'activity', 'SM fill × tensor issue', 'clock']
    """
    if tensor is None:
        return TelemetryTree(ofu, (_factor(ofu, *LABELS),) if ofu is not None else ())
    if sm == 0 and tensor > 0:  # a gauge that is stuck at 0 explains nothing: as if it were not exported
        sm = None
    if gr == 0 and max(tensor, sm or 0) > 0:
        gr = None
    clock = _factor(None if ofu is None else clock_efficiency(ofu, tensor), "clock")
    if gr is not None and sm is not None:
        middle = (_factor(sm_fill(sm, gr), "sm_fill"), _factor(tensor_issue(tensor, sm), "tensor_issue"))
        return TelemetryTree(ofu, (*_spread(gr, gr_max, "activity"), *middle, clock))
    if gr is not None:
        return TelemetryTree(ofu, (*_spread(gr, gr_max, "activity"), _factor(ratio(tensor, gr), "sm_fill", "tensor_issue"), clock))
    if sm is not None:
        return TelemetryTree(ofu, (*_spread(sm, sm_max, "activity", "sm_fill"), _factor(tensor_issue(tensor, sm), "tensor_issue"), clock))
    return TelemetryTree(ofu, (*_spread(tensor, tensor_max, "activity", "sm_fill", "tensor_issue"), clock))


def _spread(mean: float, most: float | None, *names: str) -> tuple[Factor, Factor]:
    most = mean if most is None else most
    return _factor(load_balance(mean, most), "load_balance"), _factor(activity(most), *names)


def _factor(value: float | None, *names: str) -> Factor:
    return Factor("_x_".join(names), " × ".join(LABELS[n] for n in names), value, names)


# --- losses, which add up ---


def step_losses(time: Array, means: Mapping[str, Array], most: Mapping[str, Array]) -> dict[str, Array]:
    """Return the loss of each step of a job's chain in each row of sums, in the unit of `time`; a row's losses add up to time x (1 - OFU).

    `time` is the row's time whose OFU is known, weighted by the share of the GPU that it is; `means` has the row's means over that time
    (`ofu`, `tensor`, `sm`, `gr`; NaN: not known), `most` the highest mean of any GPU of the row's job, for `gr`, `sm` and `tensor` (NaN: no
    GPU of the job has it). Steps that a row can't tell apart are merged, under the joined name; a step that it does not have is NaN.

    Two GPUs of a job, busy for 0.8 and 0.4 of the time, with all SMs filled and the tensor pipes at work half of that, at full clock:

    >>> gr = np.array([0.8, 0.4])
    >>> most = {name: np.full(2, value) for name, value in (("gr", 0.8), ("sm", 0.8), ("tensor", 0.4))}
    >>> found = step_losses(np.full(2, 100.0), {"gr": gr, "sm": gr, "tensor": gr / 2, "ofu": gr / 2}, most)
    >>> {name: [round(float(x), 9) for x in lost] for name, lost in found.items() if not np.isnan(lost).all()}
    {'load_balance': [0.0, 50.0], 'activity': [20.0, 10.0], 'sm_fill': [0.0, 0.0], 'tensor_issue': [40.0, 20.0], 'clock': [0.0, 0.0]}
    """
    tensor, sm, gr = (means[name] for name in ("tensor", "sm", "gr"))
    by_gr, by_sm = ~np.isnan(most["gr"]), np.isnan(most["gr"]) & ~np.isnan(most["sm"])  # what the job's GPUs are compared by
    has_gr, has_sm = by_gr & ~np.isnan(gr), ~np.isnan(sm)
    base, top = np.where(by_gr, gr, np.where(by_sm, sm, tensor)), np.where(by_gr, most["gr"], np.where(by_sm, most["sm"], most["tensor"]))
    compared = ~np.isnan(base)  # a row that lacks the gauge by which its job is compared can't be
    even = np.where(top > 0, ratio(base, top), 1.0)
    busy = time * even * (1 - top)
    steps = {
        "load_balance": (compared, time * (1 - even)),
        "activity": (compared & by_gr, busy),
        "activity_x_sm_fill": (compared & by_sm, busy),
        "activity_x_sm_fill_x_tensor_issue": (compared & ~by_gr & ~by_sm, busy),
        "load_balance_x_activity_x_sm_fill": (~compared & has_sm, time * (1 - sm)),
        "load_balance_x_activity_x_sm_fill_x_tensor_issue": (~compared & ~has_sm, time * (1 - tensor)),
        "sm_fill": (has_gr & has_sm, time * (gr - sm)),
        "sm_fill_x_tensor_issue": (has_gr & ~has_sm, time * (gr - tensor)),
        "tensor_issue": (has_sm & (by_gr | by_sm), time * (sm - tensor)),
        "clock": (np.ones(len(time), np.bool_), time * (tensor - means["ofu"])),
    }
    return {name: np.where(where & (time > 0), lost, np.nan) for name, (where, lost) in steps.items()}


def credible(tensor: Array, sm: Array, gr: Array) -> tuple[Array, Array]:
    """Return the gauges of SMs and engine without those that are stuck at 0: they explain nothing, as if they were not exported.

    >>> [found.tolist() for found in credible(np.array([0.2, 0.0]), np.array([0.0, 0.0]), np.array([0.5, 0.5]))]
    [[nan, 0.0], [0.5, 0.5]]
    """
    sm = np.where((sm == 0) & (tensor > 0), np.nan, sm)
    return sm, np.where((gr == 0) & (np.fmax(tensor, np.nan_to_num(sm)) > 0), np.nan, gr)


def chain(time: float, ofu: float | None, losses: Mapping[str, float]) -> TelemetryTree:
    """Return the chain of some rows from what each step loses of their `time`: a factor is what is left after a step over what was before.

    Inside one job the factors are the job's own. Above it they only say what is left: losses add, factors do not.

    >>> [(f.name, f.value) for f in chain(100.0, 0.25, {"held_idle": 20.0, "activity": 40.0, "clock": 15.0}).factors]
    [('held_idle', 0.8), ('activity', 0.5), ('clock', 0.625)]
    """
    if ofu is None or time <= 0:
        return TelemetryTree(None, ())
    left, factors = time, []
    for name in sorted(losses, key=chain_place):
        after = left - losses[name]
        factors.append(_factor(ratio(after, left), *name.split("_x_")))
        left = after
    return TelemetryTree(ofu, tuple(factors))


def chain_place(name: str) -> tuple[int, int]:
    """Return what steps are sorted by to stand in the order of the chain.

    >>> sorted(["clock", "sm_fill", "load_balance", "sm_fill_x_tensor_issue"], key=chain_place)
    ['load_balance', 'sm_fill_x_tensor_issue', 'sm_fill', 'clock']
    """
    first = name.split("_x_")
    return list(LABELS).index(first[0]), -len(first)
