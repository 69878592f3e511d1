"""The waterfall of simulated jobs worked out a second time from the raw files, by arithmetic that shares nothing with the product.

Only `write` and the question itself are the product's: telemetry is read as Parquet, traces as JSON, FLOPs and tiles are counted by hand.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

import ullage
from ullage.simulate.job import Plan, job
from ullage.simulate.job_files import write

TENSOR_CLOCK = 1.83e9  # H100 SXM: 989.4 TFLOP/s = 132 SMs × 4096 FLOP × 1830 MHz (OFU paper, eq. 6)
PEAK = 132 * 4096 * TENSOR_CLOCK

Span = tuple[int, int]


def merged(spans: list[Span]) -> list[Span]:
    """Return spans that do not overlap and cover the same time."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def covered(spans: list[Span]) -> int:
    """Return how long at least one span runs."""
    return sum(end - start for start, end in merged(spans))


@dataclass(frozen=True)
class Rank:
    """One device of a trace, in ns: computing, computing or a collective, anything at all; and when its recording begins and ends."""

    computing: int
    kernels: int
    anything: int
    begin: int
    end: int


def rank(file: Path) -> Rank:
    """Return the times of one rank's file."""
    spans: dict[str, list[Span]] = {"kernel": [], "collective": [], "copy": [], "all": []}
    for event in json.loads(file.read_text())["traceEvents"]:
        if event.get("ph") != "X" or event["pid"] == "Spans":
            continue
        start, length = (round(event[edge] * 1000) for edge in ("ts", "dur"))
        span = (start, start + length)
        spans["all"].append(span)
        if event["cat"] == "kernel":
            spans["collective" if "nccl" in event["name"].lower() else "kernel"].append(span)
        elif event["cat"] in ("gpu_memcpy", "gpu_memset"):
            spans["copy"].append(span)
    kernels = spans["kernel"] + spans["collective"]
    ends = [edge for span in spans["all"] for edge in span]
    return Rank(covered(spans["kernel"]), covered(kernels), covered(kernels + spans["copy"]), min(ends), max(ends))


def from_traces(folder: Path) -> dict[str, float]:
    """Return what the device tree says of the traced steps, collectives set apart (TALP paper, eq. 9 to 12)."""
    ranks = [rank(file) for file in folder.iterdir()]
    elapsed = max(r.end for r in ranks) - min(r.begin for r in ranks)
    computing, longest, most = sum(r.computing for r in ranks), max(r.computing for r in ranks), max(r.anything for r in ranks)
    parallel, exposed = computing / (len(ranks) * elapsed), sum(r.kernels - r.computing for r in ranks) / (len(ranks) * elapsed)
    balance, communication, orchestration = computing / (len(ranks) * longest), longest / most, most / elapsed
    return {
        "load_balance": balance,
        "communication": communication,
        "orchestration": orchestration,
        "parallel": parallel,
        "exposed": exposed,
    }


def from_telemetry(file: Path) -> dict[str, float]:
    """Return means over GPUs and samples; OFU is the mean of products (OFU paper, eq. 1 and 11)."""
    rows = parquet.read_table(file).to_pylist()
    mean = {name: math.fsum(row[name] for row in rows) / len(rows) for name in ("sm_active", "tensor_active")}
    return mean | {"ofu": math.fsum(row["tensor_active"] * row["sm_clock"] for row in rows) / TENSOR_CLOCK / len(rows)}


def from_config(fields: dict[str, Any], ranks: int) -> dict[str, float]:
    """Return model efficiency and MFU of a step of a Llama, causal attention counted over s (s + 1) / 2 pairs."""
    step, width, inner = fields["step"], fields["hidden_size"], fields["intermediate_size"]
    keys = width // fields["num_attention_heads"] * fields["num_key_value_heads"]
    tokens, pairs = step["batch"] * step["seq"], step["batch"] * step["seq"] * (step["seq"] + 1) // 2
    down = 2 * tokens * inner * width
    layer = 2 * tokens * (2 * width * width + 2 * width * keys + 2 * width * inner) + down + 4 * pairs * width
    needed = 3 * (fields["num_hidden_layers"] * layer + 2 * tokens * width * fields["vocab_size"])
    # full recomputation runs every layer's forward again, but for its last linear, and never the head
    again = fields["num_hidden_layers"] * (layer - down) if step["recompute"] == "full" else 0
    return {"model": needed / (needed + again), "mfu": needed / (step["step_time"] * ranks * PEAK)}


def from_products(rows: list[dict[str, Any]]) -> float:
    """Return needed over executed multiply-adds of matrix products in whole clusters of tiles (OFU paper, eq. 2 to 4)."""
    needed = executed = 0
    for row in rows:
        across, down = (row["tile"][n] * row["cluster"][n] for n in (0, 1))
        sizes = [-(-row[size] // unit) * unit for size, unit in (("m", across), ("n", down), ("k", row["k_tile"]))]
        needed += row["count"] * row["m"] * row["n"] * row["k"]
        executed += row["count"] * math.prod(sizes)
    return needed / executed


@pytest.mark.parametrize(("seed", "ranks"), [(21, 2), (23, 1), (15, 2)])
def test_the_report_is_what_the_raw_files_say(seed, ranks, tmp_path):
    made = write(job(Plan(ranks=ranks, steps=2, seed=seed)), tmp_path)
    trace, gauges = from_traces(made.traces), from_telemetry(made.telemetry)
    step, tile = from_config(json.loads(made.config.read_text()), ranks), from_products(json.loads(made.gemms.read_text()))
    report = ullage.waterfall(*map(str, (made.telemetry, made.traces, made.config, made.gemms)))
    found = {cost.step.name: cost.step.factor for cost in report.costs}
    by_hand = {name: trace[name] for name in ("load_balance", "communication", "orchestration")}
    by_hand |= {"sm_fill": gauges["sm_active"] / trace["parallel"], "tensor_issue": gauges["tensor_active"] / gauges["sm_active"]}
    by_hand |= {"clock": gauges["ofu"] / gauges["tensor_active"], "tile": tile, "model": step["model"]}
    # gauges are kept as 32-bit floats
    assert {name: factor.value for name, factor in found.items()} == pytest.approx(by_hand, rel=2e-6)
    assert report.headline.value == pytest.approx(step["mfu"], rel=1e-9)
    # between none and all of the exposed collectives on the SMs
    least = max(gauges["sm_active"] - trace["exposed"], gauges["tensor_active"])
    assert found["sm_fill"].low == pytest.approx(least / trace["parallel"], rel=2e-6)
    assert found["tensor_issue"].high == pytest.approx(gauges["tensor_active"] / least, rel=2e-6)
    truth = json.loads(made.truth.read_text())
    assert report.headline.value == pytest.approx(truth["mfu"], rel=1e-6)
    for name, factor in found.items():
        assert factor.low is not None and factor.high is not None
        if name != "clock":  # whose error is that of 95 % of samplings
            assert factor.low - 1e-6 <= truth["factors"][name] <= factor.high + 1e-6, name
