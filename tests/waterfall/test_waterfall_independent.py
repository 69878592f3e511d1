"""The waterfall of simulated jobs worked out a second time from the raw files, by arithmetic that shares nothing with the product.

Only `write` and the question itself are the product's: telemetry is read as Parquet, traces as JSON, FLOPs and tiles are counted by hand.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
import pytest

import ullage
from ullage.simulate.job import JobPlan, job
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
    """One device of a trace, in ns: computing, computing or a collective, anything at all; and when its recording begins and ends.

    The rest are SM-ns, of a GPU whose SMs count 1: collectives hold `held`, `apart` of it surely without a kernel on the same SM; kernels
    are on `on` where their blocks take equally long, and on `most` at most.
    """

    computing: int
    kernels: int
    anything: int
    begin: int
    end: int
    held: float
    apart: float
    on: float
    most: float


SMS = 132
Launch = tuple[int, int, int, int, int, int]  # start and end in ns; blocks, threads of a block, registers of a thread, shared memory


def on_sms(launch: Launch) -> float:
    """Return the share of SMs that equally long blocks are on: as many on each SM as its registers and shared memory allow."""
    _, _, blocks, threads, registers, shared = launch
    fit = min(65536 // (threads * registers), (228 << 10) // (shared + 1024), 2048 // threads, 32)
    waves, left = [min(SMS, blocks)] * (blocks // (fit * SMS)), blocks % (fit * SMS)
    waves += [min(left, SMS)] if left else []
    return sum(waves) / len(waves) / SMS


def together(one: Launch, other: Launch) -> bool:
    """Return whether an SM has room for a block of each."""
    return one[3] * one[4] + other[3] * other[4] <= 65536 and one[5] + other[5] + 2048 <= 228 << 10


def resident(works: list[Launch], talks: list[Launch]) -> tuple[float, float, float, float]:
    """Return held, apart, on and most of a device, one stretch between two edges after another."""
    edges, sums = sorted({edge for launch in works + talks for edge in launch[:2]}), [0.0] * 4
    for start, end in itertools.pairwise(edges):
        kernels, ring = ([launch for launch in of if launch[0] <= start and end <= launch[1]] for of in (works, talks))
        held = sum(launch[2] for launch in ring) / SMS
        apart = 0.0 if kernels and any(together(kernel, other) for kernel in kernels for other in talks) else held
        room = 1 - apart
        on, most = (min(sum(shares), room) for shares in ([on_sms(k) for k in kernels], [min(k[2] / SMS, 1.0) for k in kernels]))
        for n, share in enumerate((held, apart, on, most)):
            sums[n] += share * (end - start)
    return sums[0], sums[1], sums[2], sums[3]


def rank(file: Path) -> Rank:
    """Return the times of one rank's file."""
    spans: dict[str, list[Span]] = {"kernel": [], "collective": [], "copy": [], "all": []}
    launched: dict[bool, list[Launch]] = {False: [], True: []}
    for event in json.loads(file.read_text())["traceEvents"]:
        if event.get("ph") != "X" or event["pid"] == "Spans":
            continue
        start, length = (round(event[edge] * 1000) for edge in ("ts", "dur"))
        span = (start, start + length)
        spans["all"].append(span)
        if event["cat"] == "kernel":
            args = event["args"]
            launch = (*span, math.prod(args["grid"]), math.prod(args["block"]), args["registers per thread"], args["shared memory"])
            launched["nccl" in event["name"].lower()].append(launch)
            spans["collective" if "nccl" in event["name"].lower() else "kernel"].append(span)
        elif event["cat"] in ("gpu_memcpy", "gpu_memset"):
            spans["copy"].append(span)
    kernels = spans["kernel"] + spans["collective"]
    ends = [edge for span in spans["all"] for edge in span]
    return Rank(
        covered(spans["kernel"]), covered(kernels), covered(kernels + spans["copy"]), min(ends), max(ends), *resident(*launched.values())
    )


def from_traces(folder: Path) -> dict[str, float]:
    """Return what the device tree says of the traced steps, collectives set apart (TALP paper, eq. 9 to 12)."""
    ranks = [rank(file) for file in folder.iterdir()]
    elapsed = max(r.end for r in ranks) - min(r.begin for r in ranks)
    computing, longest, most = sum(r.computing for r in ranks), max(r.computing for r in ranks), max(r.anything for r in ranks)
    parallel = computing / (len(ranks) * elapsed)
    balance, communication, orchestration = computing / (len(ranks) * longest), longest / most, most / elapsed
    return {
        "load_balance": balance,
        "communication": communication,
        "orchestration": orchestration,
        "parallel": parallel,
        **{name: sum(getattr(r, name) for r in ranks) / (len(ranks) * elapsed) for name in ("held", "apart", "on", "most")},
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


@pytest.mark.parametrize(("seed", "ranks"), [(21, 2), (23, 1), (15, 2), (3, 4), (7, 3)])
def test_the_report_is_what_the_raw_files_say(seed, ranks, tmp_path):
    made = write(job(JobPlan(ranks=ranks, steps=2, seed=seed)), tmp_path)
    trace, gauges = from_traces(made.traces), from_telemetry(made.telemetry)
    step, tile = from_config(json.loads(made.config.read_text()), ranks), from_products(json.loads(made.gemms.read_text()))
    report = ullage.waterfall(*map(str, (made.telemetry, made.traces, made.config, made.gemms)))
    found = {cost.step.name: cost.step.factor for cost in report.costs}
    by_hand = {name: trace[name] for name in ("load_balance", "communication", "orchestration")}
    least, most = max(gauges["sm_active"] - trace["held"], gauges["tensor_active"]), gauges["sm_active"] - trace["apart"]
    most = min(most, trace["parallel"], *([trace["most"]] if trace["most"] >= least else []))
    on = trace["on"] if least <= trace["on"] <= most else least
    by_hand |= {"sm_fill": on / trace["parallel"], "tensor_issue": gauges["tensor_active"] / on}
    by_hand |= {"clock": gauges["ofu"] / gauges["tensor_active"], "tile": tile, "model": step["model"]}
    # gauges are kept as 32-bit floats
    assert {name: factor.value for name, factor in found.items()} == pytest.approx(by_hand, rel=2e-6)
    assert report.headline.value == pytest.approx(step["mfu"], rel=1e-9)
    assert (found["sm_fill"].low, found["sm_fill"].high) == pytest.approx((least / trace["parallel"], most / trace["parallel"]), rel=2e-6)
    assert found["tensor_issue"].high == pytest.approx(gauges["tensor_active"] / least, rel=2e-6)
    truth = json.loads(made.truth.read_text())
    assert report.headline.value == pytest.approx(truth["mfu"], rel=1e-6)
    for name, factor in found.items():
        assert factor.low is not None and factor.high is not None
        if name != "clock":  # whose error is that of 95 % of samplings
            assert factor.low - 1e-6 <= truth["factors"][name] <= factor.high + 1e-6, name


BEGIN = 1_767_225_600_000_000_000  # 2026-01-01 UTC, ns


def event(name: str, start: int, length: int, **args: Any) -> dict[str, Any]:
    """Return an event of a device's stream, or of the host where it has no stream."""
    place = {"pid": 0, "tid": args["stream"]} if "stream" in args else {"pid": 77, "tid": 77}
    category = "kernel" if "stream" in args else "user_annotation" if name.startswith("Profiler") else "cuda_runtime"
    return {"ph": "X", "cat": category, "name": name, **place, "ts": start / 1000, "dur": length / 1000, "args": args}


def overlapped(folder: Path, channels: int, overlap: float, blocks: int = 99) -> list[Path]:
    """Write telemetry and traces of 4 GPUs: a step of 104 ms computes for 100 of them.

    Collectives hold `channels` SMs for `overlap` of that and 2 ms more. Kernels have `blocks` blocks, one on an SM; they are on 75 % of
    the SMs, on which the tensor pipes issue for 70 % of the time.
    """
    step, compute, exposed = 104_000_000, 100_000_000, 2_000_000
    (folder / "traces").mkdir()
    product = {"grid": [blocks, 1, 1], "block": [384, 1, 1], "registers per thread": 168, "shared memory": 200 << 10}
    ring = {"grid": [channels, 1, 1], "block": [544, 1, 1], "registers per thread": 96, "shared memory": 40 << 10}
    for number in range(4):
        events = []
        for n in range(3):
            at = n * step
            events += [event("cudaLaunchKernel", at + 1000 * k, 900, correlation=10 * n + k) for k in range(3 if overlap else 2)]
            events.append(
                event(
                    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
                    at + 1_000_000,
                    compute,
                    device=0,
                    stream=7,
                    correlation=10 * n,
                    **product,
                )
            )
            spans = ((at + 1_000_000 + compute, exposed), (at + 1_000_000, round(compute * overlap)))
            events += [
                event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", *span, device=0, stream=20, correlation=10 * n + 1 + k, **ring)
                for k, span in enumerate(spans)
                if span[1]
            ]
            events.append(event("cudaDeviceSynchronize", at + 5000, step - 6000, correlation=10 * n + 9))
            events.append(event(f"ProfilerStep#{n}", at, step))
        device = {
            "id": 0,
            "name": "NVIDIA H100 80GB HBM3",
            "numSms": SMS,
            "computeMajor": 9,
            "computeMinor": 0,
            "regsPerMultiprocessor": 65536,
            "uuid": f"GPU-{number}",
        }
        run = {"backend": "nccl", "rank": number, "world_size": 4}
        trace = {"deviceProperties": [device], "distributedInfo": run, "baseTimeNanoseconds": BEGIN, "traceEvents": events}
        (folder / "traces" / f"rank{number}.json").write_text(json.dumps(trace))
    active = compute / step * (0.75 + overlap * channels / SMS) + exposed / step * channels / SMS
    rows = [
        {
            "time": datetime.datetime.fromtimestamp(BEGIN / 1e9 + 30 * n, datetime.UTC),
            "host": "node-1",
            "gpu": f"GPU-{number}",
            "model": "NVIDIA H100 80GB HBM3",
            "job": "j",
            "gr_active": (compute + exposed) / step * (1 + (-1) ** n / 1000),  # a gauge that never moves is not believed
            "sm_active": active * (1 + (-1) ** n / 1000),
            "tensor_active": compute / step * 0.75 * 0.7 * (1 + (-1) ** n / 1000),
            "sm_clock": 1.6e9 + 1e6 * (n % 3),
        }
        for number in range(4)
        for n in range(1, 121)
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "telemetry.parquet")
    return [folder / "telemetry.parquet", folder / "traces"]


@pytest.mark.parametrize(("channels", "overlap"), [(20, 0.9), (16, 0.6), (24, 0.0), (1, 1.0)])
def test_collectives_that_computing_hides_are_not_taken_for_sm_fill(channels, overlap, tmp_path):
    report = ullage.waterfall(*map(str, overlapped(tmp_path, channels, overlap)), window="steps")
    found = {cost.step.name: cost.step.factor for cost in report.costs}
    # an SM holds one block of the product, and none of a collective beside it: what is held is known, and so is the rest
    for name, planted in (("sm_fill", 0.75), ("tensor_issue", 0.7)):
        assert (found[name].value, found[name].low, found[name].high) == pytest.approx((planted,) * 3, rel=1e-5)


def test_sm_fill_that_collectives_take_is_said_to_be_communications(tmp_path):
    report = ullage.waterfall(*map(str, overlapped(tmp_path, 20, 0.9)), window="steps")
    # 0.9 of 100 of 104 ms on 20 of 132 SMs are 13.1 points, of the 100 / 104 x 25 % = 24.0 that SM fill takes
    said = next(note for note in report.notes if note.startswith("collectives hold"))
    assert said.startswith("collectives hold 13.6 % of the SMs while kernels compute: up to 13.1 of the 24.0 points of SM fill")


def test_a_grid_that_does_not_say_how_long_its_blocks_run_is_not_believed_against_telemetry(tmp_path):
    # 1,320 blocks would fill 132 SMs for ten waves; telemetry says that they are on three quarters of the SMs
    report = ullage.waterfall(*map(str, overlapped(tmp_path, 20, 0.9, blocks=1320)), window="steps")
    fill = next(cost.step.factor for cost in report.costs if cost.step.name == "sm_fill")
    assert (fill.value, fill.low, fill.source) == (pytest.approx(0.75, rel=1e-5), pytest.approx(0.75, rel=1e-5), "telemetry")
    said = {d.what: d for d in report.chain.disagreements}["SMs that kernels are on"]
    assert not said.agree
