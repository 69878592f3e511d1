"""Does OFU, sampled and exact, agree with the MFU of products whose FLOPs are known?"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.check import Findings, check
from gpu.load import SustainedWork
from gpu.machine import Machine
from gpu.telemetry import CountedCycles, column, counted_cycles, exact, mean, watched
from ullage.metrics.ofu import sampled_ofu

SIZES = (1024, 2048, 4096, 8192, 16384)
GAPS = (0.35, 0.25)  # seconds on and off: no whole fraction of the sampling interval
SECONDS, INTERVAL = 5.0, 1.0
LARGE = 4096  # from this size on a product fills the GPU
KINDS = ("sampled", "exact", "counted")
WORST = 0.04  # of a large product: tiles add 3 points at most to OFU; beyond, one of the two is not what we take it for


@check(
    headline="OFU is off MFU by {sampled_error:.1%} sampled, {exact_error:.1%} exact, {counted_error:.1%} by counted cycles; best MFU "
    "{best_mfu:.1%}, {best_flops:.4g} FLOP/s",
    loaded=True,
    answers={
        "sampled_error": "largest distance of sampled OFU from MFU, steady products",
        "exact_error": "largest distance of exact OFU from MFU, steady products (–: no cycle counters)",
        "counted_error": "largest distance of OFU by cycles that the SMs counted (PM sampling) from MFU, steady products (–: not counted)",
        "sampled_error_with_gaps": "distance of sampled OFU from MFU with idle gaps",
        "exact_error_with_gaps": "distance of exact OFU from MFU with idle gaps",
        "counted_error_with_gaps": "distance of OFU by counted cycles from MFU with idle gaps",
        "told_over_counted": "SM clock told by NVML over that counted, mean of the steady products",
        "highest_clock": "highest SM clock sampled over the tensor clock: above 1, sampled OFU can pass 1",
        "highest_sampled_ofu": "highest sampled OFU of all these, zeros among them: above 1, it did",
        "zeros_clock": "SM clock over the tensor clock under products of zeros, which draw little power",
        "zeros_error": "distance of sampled OFU from MFU on zeros",
        "best_flops": "best rate reached, FLOP/s",
        "best_mfu": "the same over the chip's peak",
    },
    columns={
        "size": "M = N = K",
        "pattern": "steady, gaps, or zeros",
        "seconds": "of the window",
        "tensor_active": "mean of GPM's activity",
        "sm_clock": "mean of the samples, Hz",
        "power": "mean, W",
        "temperature": "mean, C",
        "throttle": "clock event reasons that occurred, as NVML's bit mask",
        "sampled_ofu": "mean of activity × SM clock / tensor clock",
        "exact_ofu": "from the cycle counters",
        "counted_ofu": "tensor cycles that the SMs counted (PM sampling), over time and tensor clock",
        "counted_clock": "cycles that the SMs counted, over time, Hz",
        "mfu": "2·M·N·K of the products done, over the time and the peak",
    },
)
def ofu_gemm(machine: Machine) -> Findings:
    """Does OFU, sampled and exact, agree with the MFU of products whose FLOPs are known?

    Square BF16 products of random normal numbers, 5 s each from size 1024 to 16384, queued without a gap; once with idle gaps; and
    once of zeros, which draw so little power that the SM clock may stay above the tensor clock of the data sheet. OFU comes from
    our own reader at 1 s, FLOPs from CUDA events over the same seconds; where CUPTI may count, the cycles of the SMs are counted over the
    same window (PM sampling), which leaves the clock that NVML tells out of it.
    """
    patterns = [*(("steady", size) for size in SIZES), ("gaps", SIZES[-2]), ("zeros", SIZES[-2])]
    findings = Findings({"dtype": "bfloat16", "load": machine.load_name, "seconds": SECONDS, "interval": INTERVAL})
    findings.settings |= {"gap_on": GAPS[0], "gap_off": GAPS[1]}
    highest = 0.0
    for pattern, size in patterns:
        assert machine.load is not None, "the runner asks for a load"
        on, off = GAPS if pattern == "gaps" else (0.0, 0.0)
        with machine.load(size, "bfloat16", on, off, zeros=pattern == "zeros") as work, counted_cycles(machine) as counts:
            found = watched(machine, SECONDS + INTERVAL, INTERVAL)
        findings.rows.append(_row(machine, work, found, pattern, counts))
        findings.notes += [f"cycles are not counted: {counts.problem}"] if counts.problem and len(findings.rows) == 1 else []
        highest = max(highest, float(np.nanmax(column(found, "sm_clock"))))
        if machine.room is not None:
            machine.room.say(_row_line(findings.rows[-1]))
            machine.room.keep(findings)
    findings.answers = _answers(machine, findings.rows, highest)
    findings.wrong = _wrong(findings.rows)
    return findings


def _row(machine: Machine, work: SustainedWork, found: list[dict[str, Any]], pattern: str, counts: CountedCycles) -> dict[str, Any]:
    """Return one line of the table. The first reading is the begin of the window and otherwise left out: it saw the ramp."""
    chip, samples = machine.chip, found[1:]
    begin, end = found[0]["time"], found[-1]["time"]
    sampled = sampled_ofu(column(samples, "tensor_active"), column(samples, "sm_clock"), chip.tensor_clock)
    return {
        "size": work.size,
        "pattern": pattern,
        "seconds": end - begin,
        **{name: mean(samples, name) for name in ("tensor_active", "sm_clock", "power", "temperature")},
        "throttle": int(np.bitwise_or.reduce([int(row.get("throttle", 0)) for row in samples])),
        "sampled_ofu": float(np.nanmean(sampled)),
        "exact_ofu": exact(machine, found),
        "counted_ofu": float(np.mean(counts.ofu)) if counts.ofu else None,
        "counted_clock": float(np.mean(counts.clock)) if counts.clock else None,
        "mfu": work.flops_between(begin, end) / (end - begin) / chip.peak("bf16"),
    }


def _row_line(row: dict[str, Any]) -> str:
    exact_words, counted_words = ("–" if row[key] is None else f"{row[key]:.4f}" for key in ("exact_ofu", "counted_ofu"))
    words = f"MFU {row['mfu']:.4f}, OFU {row['sampled_ofu']:.4f} sampled, {exact_words} exact, {counted_words} counted"
    return f"    {row['size']}, {row['pattern']}: {words}"


def _answers(machine: Machine, rows: list[dict[str, Any]], highest: float) -> dict[str, Any]:
    best, (zeros,) = max(row["mfu"] for row in rows if row["pattern"] != "zeros"), [row for row in rows if row["pattern"] == "zeros"]
    worst = {
        f"{kind}_error{suffix}": _largest([row for row in rows if row["pattern"] == pattern], f"{kind}_ofu")
        for kind in KINDS
        for pattern, suffix in (("steady", ""), ("gaps", "_with_gaps"))
    }
    ratios = [row["sm_clock"] / row["counted_clock"] for row in rows if row["pattern"] == "steady" and row["counted_clock"]]
    return {
        **worst,
        "told_over_counted": float(np.mean(ratios)) if ratios else None,
        "highest_clock": highest / machine.chip.tensor_clock,
        "highest_sampled_ofu": max(row["sampled_ofu"] for row in rows),
        "zeros_clock": zeros["sm_clock"] / machine.chip.tensor_clock,
        "zeros_error": abs(zeros["sampled_ofu"] - zeros["mfu"]),
        "best_flops": best * machine.chip.peak("bf16"),
        "best_mfu": best,
    }


def _largest(rows: list[dict[str, Any]], estimate: str) -> float | None:
    return max((abs(row[estimate] - row["mfu"]) for row in rows if row[estimate] is not None), default=None)


def _wrong(rows: list[dict[str, Any]]) -> list[str]:
    above = [row for row in rows if row["mfu"] > 1 and row["pattern"] != "zeros"]  # zeros may run above the tensor clock
    wrong = [f"MFU of size {row['size']} is {row['mfu']:.3f}: the peak or the count is wrong" for row in above]
    for row in rows:
        for kind in KINDS:
            estimate = row[f"{kind}_ofu"]
            steady = row["pattern"] == "steady" and row["size"] >= LARGE
            if steady and estimate is not None and abs(estimate - row["mfu"]) > WORST:
                wrong.append(f"{kind} OFU of size {row['size']} is {estimate:.3f} where MFU is {row['mfu']:.3f}")
    return wrong
