"""The few numbers by which it shows whether microbenchmarks measured what they mean to: read off their recorded rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ullage.benches.bench import BENCHES, Labels, Quantity
from ullage.benches.result import Result, Row
from ullage.gpus.chip import Chip, find

HBM, WGMMA = (0.85, 1.0), 0.90  # shares of what the maker states
BESIDE = 0.02  # how far a product may pass the peak at the highest clock
LEVELS = {"l1_latency": "L1", "shared_latency": "shared", "l2_latency": "L2", "global_latency": "global"}  # how their labels begin
# How far a latency may lie from the paper's of the same generation, as a share: shared memory runs by the SM's clock, the L2 by its own.
NEAR = {"shared_latency": 0.07, "l2_latency": 0.15}


def answers(found: Sequence[Result], chip: Chip) -> dict[str, Any]:
    """Return the answers of the check `benches`; None for what was not measured."""
    rows = [row for result in found for row in result.rows]
    wrong = sum(1 for row in rows if is_wrong(row))
    return {
        "benches": len(found),
        "measured": sum(1 for row in rows if row.values),
        "wrong_results": wrong,
        "without": sum(1 for row in rows if row.problem) - wrong,
        **{name: latency(found, "memory-latency", level) for name, level in LEVELS.items()},
        "cluster_latency": latency(found, "cluster-latency"),
        "hbm_share": share(_values(found, "memory-bandwidth", "bandwidth", "global"), chip.bandwidth),
        "wgmma_zero_share": worst_share(found, chip, "zero"),
        "wgmma_random_share": worst_share(found, chip, "random"),
        "mma_share": max(shares(found, "mma", chip).values(), default=None),
        "best_gemm_share": shares(found, "best-gemm", chip).get("bf16"),
    }


def is_wrong(row: Row) -> bool:
    """Whether a row has no number because its result was wrong."""
    return "result is wrong" in row.problem


def latency(found: Sequence[Result], bench: str, level: str = "") -> float | None:
    """Return a latency in cycles; None where it was not measured."""
    return next(iter(_values(found, bench, "latency", level)), None)


def _values(found: Sequence[Result], bench: str, quantity: Quantity, level: str) -> list[float]:
    rows = [row for result in found if result.bench == bench for row in result.rows if quantity in row.values]
    return [row.values[quantity].value for row in rows if _of(row.labels, level)]


def _of(labels: Labels, level: str) -> bool:
    return any(str(value).startswith(level) for value in labels.values()) or not level


def share(values: Sequence[float], stated: float | None) -> float | None:
    """Return the best value over what is stated."""
    return max(values) / stated if values and stated else None


def shares(found: Sequence[Result], bench: str, chip: Chip, data: str | None = None) -> dict[str, float]:
    """Return a bench's best dense throughput over the stated peak, by precision."""
    best: dict[str, float] = {}
    for row in (row for result in found if result.bench == bench for row in result.rows):
        dense = row.precision in chip.precisions and not row.sparse and "throughput" in row.values
        if dense and (data is None or (row.stamp is not None and row.stamp.data == data)):
            name = str(row.precision)
            best[name] = max(best.get(name, 0.0), row.values["throughput"].value / chip.peak(name))
    return best


def worst_share(found: Sequence[Result], chip: Chip, data: str) -> float | None:
    """Return wgmma's share of the peak in the precision where it is least."""
    return min(shares(found, "wgmma", chip, data).values(), default=None)


def contradictions(told: Mapping[str, Any], chip: Chip, found: Sequence[Result]) -> Iterator[str]:
    """Yield what a right bench would not say of this GPU, a sentence each."""
    memory, zeros = told["hbm_share"], shares(found, "wgmma", chip, "zero")
    if memory is not None and not HBM[0] <= memory <= HBM[1]:
        yield f"global memory reaches {memory:.1%} of the stated bandwidth, where {HBM[0]:.0%} to {HBM[1]:.0%} are expected"
    highest = (chip.sm_clock or chip.tensor_clock) / chip.tensor_clock + BESIDE
    for precision, value in zeros.items():
        if not WGMMA <= value <= highest:
            yield f"wgmma in {precision} reaches {value:.1%} of the stated peak on zeros, where {WGMMA:.0%} to {highest:.0%} are expected"
    for name, near in NEAR.items():
        paper, value = published(LEVELS[name], chip), told[name]
        if paper is not None and value is not None and abs(value / paper - 1) > near:
            yield f"the latency of {LEVELS[name]} is {value:.1f} cycles, where {paper:g} are published for such a GPU"
    wrong = [f"{result.bench} ({_named(row)})" for result in found for row in result.rows if is_wrong(row)]
    if wrong:
        yield f"{len(wrong)} cases gave a wrong result: {', '.join(wrong[:5])}{', …' if len(wrong) > 5 else ''}"


def _named(row: Row) -> str:
    return " ".join(str(value) for value in row.labels.values() if value is not None)


def published(level: str, chip: Chip) -> float | None:
    """Return the published latency of a level for a GPU of the chip's architecture; None where there is none."""
    figures = [figure for figure in BENCHES["memory-latency"].figures if _of(figure.labels, level)]
    return next((figure.value for figure in figures if find(figure.gpu).architecture == chip.architecture), None)
