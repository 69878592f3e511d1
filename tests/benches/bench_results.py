"""Results of microbenchmarks as a GPU would give them: the rows of the real benches, with the H800's published figures times a factor.

Nothing here was measured. What the paper has no figure for gets the round number of its quantity in `ROUND`, or one by `planted`.
"""

from __future__ import annotations

from dataclasses import replace

from ullage.benches.bench import BENCHES, Target, cases_for
from ullage.benches.quantities import UNITS
from ullage.benches.result import BenchResult, CaseRow, Stamp, Value

H200, H800 = "NVIDIA H200", "NVIDIA H800 PCIe"
MACHINE = {
    "gpu": H200, "uuid_hash": "GPU-0123456789abcdef", "driver": "580.95.05", "cuda": "13.0", "compiler": "13.0",
    "power_limit": 700.0, "sms": 132, "ecc": True, "torch": "2.11.0", "cuda_bindings": "13.0.3", "processes": 0,
}  # fmt: skip
ROUND = {
    "latency": 100.0, "throughput": 60e12, "bandwidth": 3e12, "bytes_per_cycle": 1000.0, "bytes_per_cycle_sm": 10.0,
    "results_per_cycle_sm": 100.0, "time": 1e-3, "rate": 1e12, "power": 500.0, "efficiency": 1e12,
}  # fmt: skip
DATE = "2026-08-10T12:00:00Z"


def value(amount, quantity="throughput"):
    """Return a value whose repeats all lay within a percent of it."""
    return Value(amount, amount * 0.99, amount * 1.01, 5, UNITS[quantity])


def stamp(data="random", clock=1.755e9, power=500.0, throttle=(), **more):
    """Return what a number was measured under."""
    return Stamp(clock, "kernel", power, 55.0, throttle, data, **more)


def row(labels, values=None, problem="", stamped=None, **more):
    """Return a row with amounts by quantity, or with the problem for which it has none."""
    found = {quantity: value(amount, quantity) for quantity, amount in (values or {}).items()}
    return CaseRow(labels, found, (stamped or stamp()) if found else None, problem, **more)


def result(bench, *rows, machine=None, date=DATE, quick=False, notes=()):
    """Return a bench's result with these rows."""
    return BenchResult(bench, date, {**MACHINE, **(machine or {})}, quick, tuple(rows), tuple(notes), 1.5, {"seed": 7})


def of_bench(name, factor=1.0, planted=None, quick=False, problems=None, **more):
    """Return a result with a row for each case that the bench has for an H200.

    Published quantities are the H800's × `factor`; `planted(labels, quantity)` gives the others, and `problems` (by the case's place,
    from 0) takes the numbers of some away.
    """
    member = BENCHES[name]
    figures = {(tuple(sorted(f.labels.items())), f.quantity): f.value for f in member.figures if f.gpu == H800}
    rows = []
    for place, case in enumerate(cases_for(member, Target("sm_90a", H200), quick)):
        key = tuple(sorted(case.labels.items()))
        amounts = {}
        for quantity in case.quantities:
            figure = figures.get((key, quantity))
            found = None if planted is None else planted(case.labels, quantity)
            amounts[quantity] = found if found is not None else ROUND[quantity] if figure is None else figure * factor
        problem = (problems or {}).get(place, "")
        work = {"precision": case.precision, "sparse": case.sparse, "flops": case.flops, "bytes": case.bytes}
        times = {"seconds": case.seconds, "settled": case.settle} if case.seconds else {}
        rows.append(row(case.labels, {} if problem else amounts, problem, stamp(case.data, **times), **work))
    return result(name, *rows, quick=quick, **more)


def slower(found, factor, quantities=("throughput", "bandwidth", "rate"), clock=1.0):
    """Return a result whose numbers of some quantities, and whose SM clock, are the old ones times a factor."""

    def changed(one):
        values = {name: value(v.value * (factor if name in quantities else 1.0), name) for name, v in one.values.items()}
        return replace(one, values=values, stamp=one.stamp and replace(one.stamp, sm_clock=one.stamp.sm_clock * clock))

    return replace(found, rows=tuple(changed(one) for one in found.rows))
