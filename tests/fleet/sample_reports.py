"""Fleet reports made by hand, for whoever shows them: a rich one, and the ends of every range."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ullage.audit.trust import Verdict
from ullage.metrics.clocks import SamplingNoise
from ullage.metrics.telemetry import TelemetryTree, tree
from ullage.reports.fleet.agreement import Agreement, Comparison, SizeRow
from ullage.reports.fleet.bills import FleetMoney
from ullage.reports.fleet.course import CoursePoint
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.fleet.groups import Group

HOUR = 3_600_000
START = 1_786_320_000_000  # 2026-08-10 00:00 UTC
WEEK = (START, START + 168 * HOUR)
HOSTILE = '<script>alert("1")</script>\x1b[31m\x00&\'"\ud800\u202e]]>'

JOBS = (
    ("llama-70b-pretrain-2026-08-run-0001", 512, 40_320.0, 0.41),
    ("vision-encoder/ablation-4/very-long-name-that-somebody-generated-from-a-config-file-hash-9f3a77c1", 128, 12_900.0, 0.17),
    ("moe-16b-latent-experts", 288, 9_600.0, 0.2558),
    ("hybrid-mamba-8b", 64, 6_100.0, 0.1556),
    ("no job", 96, 5_400.0, 0.0),
    ("diffusion-transformer", 32, 3_020.0, 0.38),
    ("eval-nightly", 8, 960.0, 0.03),
    ("notebook (held for a week)", 2, 336.0, 0.0007),
    ("old-exporter-job", 4, 300.0, None),
)


def chain(ofu: float | None, *, sm: bool = True) -> TelemetryTree:
    """Return a tree whose factors multiply to `ofu`: activity 0.8, balance 0.95, fill 0.85, clock 0.97, tensor issue what is left."""
    if ofu is None:
        return TelemetryTree(None, ())
    gr = 0.8 * 0.95
    return tree(ofu=ofu, tensor=ofu / 0.97, tensor_max=ofu, sm=gr * 0.85 if sm else None, sm_max=0.8 * 0.85, gr=gr, gr_max=0.8)


def group(key: str, gpus: int = 8, gpu_hours: float = 100.0, ofu: float | None = 0.3, **more: Any) -> Group:
    """Return a group with plain values."""
    values = {"method": "sampled", "trusted_share": 1.0, "tree": chain(ofu), "cost": None} | more
    values.setdefault("counted_hours", gpu_hours * values["trusted_share"])
    return Group(key=key, ofu=ofu, gpus=gpus, gpu_hours=gpu_hours, **values)


def course_of_a_week() -> list[CoursePoint]:
    """Return 168 hours, of which 8 were not measured at all and 4 without OFU."""
    points = []
    for hour in range(168):
        if 50 <= hour < 58:
            continue
        day = math.sin(hour / 24 * 2 * math.pi)
        ofu = 0.31 + 0.07 * day + 0.03 * math.sin(hour * 1.7)
        points.append(
            CoursePoint(
                START + hour * HOUR, None if 100 <= hour < 104 else ofu, 0.68 + 0.09 * day + 0.02 * math.cos(hour), 512.0 - hour % 5 * 10
            )
        )
    return points


def agreement_of(jobs: list[Comparison]) -> Agreement:
    """Return an agreement over jobs; its means are of no interest."""
    ranked = sorted(jobs, key=lambda job: -abs(job.mfu - job.ofu))
    rows = [
        SizeRow(8, 40, 0.312, 0.081, 0.021, 0.013),
        SizeRow(64, 21, 0.334, 0.064, 0.018, 0.011),
        SizeRow(288, 1, 0.5427, None, 0.2869, None),
    ]
    return Agreement(rows, ranked, 0.91, 0.334, 0.312, 0.024, 0.95, 0.016, [])


def agreement() -> Agreement:
    """Return 62 jobs: most report what was measured, five don't."""
    jobs = [
        Comparison(f"job-{n:04d}", 8 << (n % 7), 0.3 + 0.09 * math.sin(n) + 0.02 * math.cos(n * 3), 0.3 + 0.09 * math.sin(n), 0.05)
        for n in range(57)
    ]
    odd = [
        Comparison("moe-16b-latent-experts", 288, 0.5427, 0.2558, 1.12),
        Comparison("hybrid-mamba-8b", 64, 0.2451, 0.1556, 0.58),
        Comparison("world-model-8b-checkpointing", 256, 0.26, 0.34, -0.24),
        Comparison("a-very-long-job-name/with-parts/that-goes-on-and-on/for-longer-than-any-column-0001", 8, 0.62, 0.31, 1.0),
        Comparison("sparse-peak-in-the-denominator", 16, 0.19, 0.38, -0.5),
    ]
    return agreement_of(jobs + odd)


def report(**changes: Any) -> FleetReport:
    """Return a rich report over a week, with `changes`."""
    groups = [
        group(key, gpus, spent, ofu, cost=spent * 2.5, trusted_share=0.9 if n == 3 else 1.0)
        for n, (key, gpus, spent, ofu) in enumerate(JOBS)
    ]
    rich = FleetReport(
        ofu=0.3137,
        ofu_all=0.3121,
        method="sampled",
        exact_share=0.0,
        gpus=512.0,
        gpu_hours=86_016.0,
        trusted_share=0.992,
        counted_hours=86_016.0 * 0.992,
        window=WEEK,
        gpu_util=0.681,
        tensor_active=0.352,
        power=412.0,
        tree=chain(0.3137),
        ledger={"job": 61_203.0, "shared": 2_150.0, "held_idle": 13_420.0, "free": 7_040.0, "unknown": 2_203.0, "total": 86_016.0},
        by="job",
        groups=groups,
        models=[
            group("NVIDIA H100 80GB HBM3", 448, 75_264.0, 0.33),
            group("NVIDIA A100-SXM4-80GB", 64, 10_752.0, 0.21, tree=chain(0.21, sm=False)),
        ],
        course=course_of_a_week(),
        verdicts={
            "stuck at zero": (2, 336.0),
            "stale": (1, 168.0),
            "wrong unit": (4, 672.0),
            "slow interval": (16, 2_688.0),
            "ok": (489, 82_152.0),
        },
        doubtful_series=[
            Verdict(
                "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52",
                "stuck at zero",
                "activity reads 0 for 412 min while GPU utilization is 50 % or more",
                168.0,
            ),
            Verdict(
                "GPU-34319582-d595-d1c7-d1d2-179bcfa61660",
                "stale",
                "1,204 of 20,160 readings repeat the ones before to the last digit",
                168.0,
            ),
            Verdict(
                "GPU-a8394b51-c086-568a-9f1a-c1e1c934c44c", "slow interval", "60 s between readings; DCGM averages over at most 30 s", 168.0
            ),
        ],
        agreement=agreement(),
        noise=[SamplingNoise(5.0, 5, 0.00031, 0.0007), SamplingNoise(30.0, 30, 0.0012, 0.0021)],
        ullage=58_561.0,
        money=FleetMoney(cost=215_040.0, ullage_cost=146_402.5, idle_cost=33_550.0),
        command="ullage fleet week.parquet --by job --price 2.5 --out report.html",
        notes=[
            "52 of 512 GPUs were silent for 20 min; those minutes are left out",
            "504.0 GPU-hours of series that can't be trusted are left out of OFU and the tree; see trust",
        ],
    )
    return dataclasses.replace(rich, **changes)


def empty() -> FleetReport:
    """Return a report in which nothing is known."""
    nothing = dict.fromkeys(("ofu", "ofu_all", "gpu_util", "tensor_active", "power", "agreement", "ullage"))
    lists: dict[str, Any] = {name: [] for name in ("groups", "models", "course", "doubtful_series", "findings", "noise", "notes")}
    ledger = dict.fromkeys(("job", "shared", "held_idle", "free", "unknown", "total"), 0.0)
    return report(
        **nothing,
        **lists,
        money=FleetMoney(),
        ledger=ledger,
        verdicts={},
        tree=TelemetryTree(None, ()),
        gpus=0.0,
        gpu_hours=0.0,
        trusted_share=0.0,
        command="",
    )
