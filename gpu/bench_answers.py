"""The few numbers by which it shows whether microbenchmarks measured what they mean to: read off their recorded rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ullage.benches.bench import BENCHES, Labels, Quantity
from ullage.benches.result import BenchResult, CaseRow
from ullage.gpus.chip import Chip, find
from ullage.reports.bench.power_curve import BENCH, power_cost
from ullage.reports.bench.roofline import ceilings

HBM = (0.85, 1.0)  # shares of what the maker states
BESIDE = 0.02  # how far clocks and times, which are of moments a little apart, may take a share above what can be
# Share of the cycles, at the clock that the kernel itself saw, in which wgmma must issue on zeros: nothing else stands in its loop, and the
# Hopper paper has 128.0 cycles for 128 cycles' worth of products. The share of the stated peak follows the power limit, and is not judged.
ISSUED = (0.97, 1.0 + BESIDE)
HELD = 1.03  # how far what was sustained may pass the best burst; what is timed twice differs by so much
OVER = 1.05  # how far the mean power of seconds may pass the limit: NVML's readings are within 5 % (Yang et al. 2023, arXiv:2312.02741)
PRODUCTS = ("wgmma", "mma", "tcgen05", "best-gemm", "sustained-ceilings")
LEVELS = {"l1_latency": "L1", "shared_latency": "shared", "l2_latency": "L2", "global_latency": "global"}  # how their labels begin
# Between which shares of the paper's latency for the same generation one may lie: shared memory runs by the SM's clock, the L2 by its own.
# A hop of ours is a load alone (23 cycles in shared memory on an H200, where the paper has 29 for an H800); one above is wrong.
NEAR = {"shared_latency": (0.75, 1.07), "l2_latency": (0.85, 1.15)}


def counts(found: Sequence[BenchResult]) -> dict[str, Any]:
    """Return how many benches and cases were measured, and how many were not."""
    rows = [row for result in found for row in result.rows]
    wrong = sum(1 for row in rows if is_wrong(row))
    return {
        "benches": len(found),
        "measured": sum(1 for row in rows if row.values),
        "wrong_results": wrong,
        "without": sum(1 for row in rows if row.problem) - wrong,
    }


def answers(found: Sequence[BenchResult], chip: Chip) -> dict[str, Any]:
    """Return the answers of the check `ceilings`; None for what was not measured."""
    return {
        **{name: latency(found, "memory-latency", level) for name, level in LEVELS.items()},
        "hbm_share": share(_values(found, "memory-bandwidth", "bandwidth", "global"), chip.bandwidth),
        "wgmma_zero_share": worst_share(found, chip, "zero"),
        "wgmma_random_share": worst_share(found, chip, "random"),
        "wgmma_zero_issue_share": min(issued(found, "wgmma", chip, "zero").values(), default=None),
        "wgmma_random_issue_share": min(issued(found, "wgmma", chip, "random").values(), default=None),
        "mma_share": max(shares(found, "mma", chip).values(), default=None),
        "best_gemm_share": shares(found, "best-gemm", chip).get("bf16"),
        **sustained_answers(found, chip),
        **power_answers(found),
    }


def by_device(found: Sequence[BenchResult]) -> list[list[BenchResult]]:
    """Return results by the GPU that they are of, the one with the most of them first."""
    groups: dict[object, list[BenchResult]] = {}
    for result in found:
        groups.setdefault(result.machine.get("uuid_hash"), []).append(result)
    return sorted(groups.values(), key=len, reverse=True)


def sustained_answers(found: Sequence[BenchResult], chip: Chip) -> dict[str, Any]:
    """Return what was sustained in BF16, over the stated peak and over the best burst, and at which clock and power."""
    told = [one for one in map(ceilings, by_device(found)) if one is not None]
    kept = next((one for one in told if "bf16" in one.sustained_flops), told[0] if told else None)
    held = None if kept is None else kept.sustained_flops.get("bf16")
    burst = None if kept is None else kept.flops.get("bf16")
    return {
        "sustained_share": held.value / chip.peak("bf16") if held is not None and "bf16" in chip.precisions else None,
        "sustained_over_burst": held.value / burst.value if held is not None and burst is not None else None,
        "sustained_clock": None if held is None else held.sm_clock,
        "sustained_power": None if held is None else held.power,
    }


def power_answers(found: Sequence[BenchResult]) -> dict[str, Any]:
    """Return what the board draws idle and under its heaviest load, its limit, and what that costs."""
    watts = {str(row.labels.get("load")): row.values["power"].value for row in _power_rows(found)}
    cost = next((cost for one in by_device(found) if (cost := power_cost(one)) is not None), None)
    return {
        "idle_power": watts.get("idle"),
        "highest_power": max((row.values["power"].value for row in _power_rows(found)), default=None),
        "power_limit": None if cost is None else cost.limit,
        "power_cost": None if cost is None else cost.share,
        "free_clock": None if cost is None else cost.free_clock,
    }


def _power_rows(found: Sequence[BenchResult]) -> list[CaseRow]:
    return [row for result in found if result.bench == BENCH for row in result.rows if "power" in row.values]


def is_wrong(row: CaseRow) -> bool:
    """Whether a row has no number because its result was wrong."""
    return "result is wrong" in row.problem


def latency(found: Sequence[BenchResult], bench: str, level: str = "") -> float | None:
    """Return a latency in cycles; None where it was not measured."""
    return next(iter(_values(found, bench, "latency", level)), None)


def _values(found: Sequence[BenchResult], bench: str, quantity: Quantity, level: str) -> list[float]:
    rows = [row for result in found if result.bench == bench for row in result.rows if quantity in row.values]
    return [row.values[quantity].value for row in rows if _of(row.labels, level)]


def _of(labels: Labels, level: str) -> bool:
    return any(str(value).startswith(level) for value in labels.values()) or not level


def share(values: Sequence[float], stated: float | None) -> float | None:
    """Return the best value over what is stated."""
    return max(values) / stated if values and stated else None


def shares(found: Sequence[BenchResult], bench: str, chip: Chip, data: str | None = None) -> dict[str, float]:
    """Return a bench's best dense throughput over the stated peak, by precision."""
    best: dict[str, float] = {}
    for _, row in _dense(found, bench, chip, data):
        name = str(row.precision)
        best[name] = max(best.get(name, 0.0), row.values["throughput"].value / chip.peak(name))
    return best


def issued(found: Sequence[BenchResult], bench: str, chip: Chip, data: str) -> dict[str, float]:
    """Return by precision the best dense throughput over what all SMs issue at the clock that the same kernel saw.

    A row whose clock is only the driver's, sampled beside it, is left out.
    """
    best: dict[str, float] = {}
    for result, row in _dense(found, bench, chip, data):
        clock, name = _own_clock(row), str(row.precision)
        if clock is not None and name in chip.flops_per_cycle:
            most = _sms(result, chip) * chip.flops_per_cycle[name] * clock
            best[name] = max(best.get(name, 0.0), row.values["throughput"].value / most)
    return best


def _dense(found: Sequence[BenchResult], bench: str, chip: Chip, data: str | None) -> Iterator[tuple[BenchResult, CaseRow]]:
    """Yield a bench's rows that tell the throughput of a dense product whose peak is known, on such data."""
    for result in found:
        for row in result.rows if result.bench == bench else ():
            dense = row.precision in chip.precisions and not row.sparse and "throughput" in row.values
            if dense and (data is None or (row.stamp is not None and row.stamp.data == data)):
                yield result, row


def _own_clock(row: CaseRow) -> float | None:
    return row.stamp.sm_clock if row.stamp is not None and row.stamp.clock_from == "kernel" else None


def _sms(result: BenchResult, chip: Chip) -> int:
    told = result.machine.get("sms")
    return told if isinstance(told, int) else chip.sms


def worst_share(found: Sequence[BenchResult], chip: Chip, data: str) -> float | None:
    """Return wgmma's share of the peak in the precision where it is least."""
    return min(shares(found, "wgmma", chip, data).values(), default=None)


def contradictions(told: Mapping[str, Any], chip: Chip, found: Sequence[BenchResult]) -> Iterator[str]:
    """Yield what a right bench would not say of this GPU, a sentence each."""
    memory = told["hbm_share"]
    if memory is not None and not HBM[0] <= memory <= HBM[1]:
        yield f"global memory reaches {memory:.1%} of the stated bandwidth, where {HBM[0]:.0%} to {HBM[1]:.0%} are expected"
    yield from _impossible_products(chip, found)
    if (ratio := told["sustained_over_burst"]) is not None and ratio > HELD:
        yield f"BF16 sustained is {ratio:.1%} of the best burst: above {HELD:.0%} bursts are timed before the clock has risen"
    limit, watts = told["power_limit"], told["highest_power"]
    if limit is not None and watts is not None and watts > limit * OVER:
        yield f"the board draws {watts:,.0f} W over seconds at a limit of {limit:,.0f} W"
    for name, (least, most) in NEAR.items():
        paper, value = published(LEVELS[name], chip), told[name]
        if paper is not None and value is not None and not least <= value / paper <= most:
            yield f"the latency of {LEVELS[name]} is {value:.1f} cycles, where {paper:g} are published for such a GPU"
    yield from wrong_results(found)


def wrong_results(found: Sequence[BenchResult]) -> Iterator[str]:
    """Yield which cases gave a wrong result, in a sentence; nothing where none did."""
    wrong = [f"{result.bench} ({_named(row)})" for result in found for row in result.rows if is_wrong(row)]
    if wrong:
        yield f"{len(wrong)} cases gave a wrong result: {', '.join(wrong[:5])}{', …' if len(wrong) > 5 else ''}"


def _impossible_products(chip: Chip, found: Sequence[BenchResult]) -> Iterator[str]:
    """Yield where products do more than their clock or the chip's highest one allows, or wgmma on zeros issues too seldom."""
    highest = (chip.sm_clock or chip.tensor_clock) / chip.tensor_clock + BESIDE
    for bench in PRODUCTS:
        for precision, value in shares(found, bench, chip).items():
            if value > highest:
                yield f"{bench} in {precision} reaches {value:.1%} of the stated peak, and {highest:.1%} is the most"
    for data, least, words in (("zero", ISSUED[0], "zeros"), ("random", 0.0, "random data")):
        for precision, value in issued(found, "wgmma", chip, data).items():
            said = f"wgmma in {precision} issues {value:.1%} of what the SMs can at the clock that it had, on {words}"
            if value > ISSUED[1]:
                yield f"{said}: more than {ISSUED[1]:.0%} can't be"
            elif value < least:
                yield f"{said}, where at least {least:.0%} are expected"


def _named(row: CaseRow) -> str:
    return " ".join(str(value) for value in row.labels.values() if value is not None)


def published(level: str, chip: Chip) -> float | None:
    """Return the published latency of a level for a GPU of the chip's architecture; None where there is none."""
    figures = [figure for figure in BENCHES["memory-latency"].figures if _of(figure.labels, level)]
    return next((figure.value for figure in figures if find(figure.gpu).architecture == chip.architecture), None)
