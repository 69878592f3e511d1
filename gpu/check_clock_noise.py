"""How much does a scrape interval of 5, 10, 20 or 30 s cost on this GPU's own clock?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.check import Findings, check
from gpu.machine import Machine, installed
from gpu.telemetry import column, parquet, watched
from ullage.metrics.clocks import sampling_noise
from ullage.metrics.ofu import sampled_ofu

SIZE = 8192
SECONDS, INTERVAL = 63.0, 0.2
EVERY = (5, 25, 50, 100, 150)  # 1, 5, 10, 20 and 30 s
KEPT = ("sm_clock", "tensor_active", "power", "temperature", "throttle")
RECORDING = "clock_noise.parquet"


@check(
    headline="a sample every 30 s is off by {deviation_30_s:.2%} of OFU, 95 % below {bound_30_s:.2%}; clock {clock_mean:.4g} Hz",
    loaded=True,
    answers={
        "clock_mean": "SM clock under a GEMM, Hz",
        "clock_sd": "its standard deviation, Hz",
        "clock_lowest": "lowest sample, Hz",
        "clock_highest": "highest sample, Hz",
        "ofu_mean": "mean of sampled OFU",
        "deviation_30_s": "mean distance of the mean of a sample every 30 s from the mean of all, OFU",
        "bound_30_s": "what 95 % of the phases stay below, of OFU",
    },
    columns={
        "series": "the clock over the tensor clock, or OFU",
        "interval": "scrape interval, s",
        "phases": "how many ways to take every so many samples",
        "mean_deviation": "mean distance of the subsampled mean from the full mean",
        "bound": "what 95 % of the phases stay below",
    },
)
def clock_noise(machine: Machine) -> Findings:
    """How much does a scrape interval of 5, 10, 20 or 30 s cost on this GPU's own clock?

    63 s under a steady BF16 GEMM, read every 0.2 s: table I of the OFU paper, over 63 s where the paper has 50 minutes,
    so that a 30 s interval has two or three samples a phase and the figure is an upper bound.
    """
    assert machine.load is not None, "the runner asks for a load"
    with machine.load(SIZE):
        found = watched(machine, SECONDS, INTERVAL)
    clock, tensor_clock = column(found, "sm_clock"), machine.chip.tensor_clock
    ofu = np.asarray(sampled_ofu(column(found, "tensor_active"), clock, tensor_clock), np.float64)
    rows, kept = _noise("clock", clock / tensor_clock) + _noise("OFU", ofu), _kept(found)
    return Findings(
        settings={"gemm": SIZE, "dtype": "bfloat16", "load": machine.load_name, "seconds": SECONDS, "interval": INTERVAL},
        answers={
            "clock_mean": float(np.nanmean(clock)),
            "clock_sd": float(np.nanstd(clock)),
            "clock_lowest": float(np.nanmin(clock)),
            "clock_highest": float(np.nanmax(clock)),
            "ofu_mean": float(np.nanmean(ofu)),
            "deviation_30_s": rows[-1]["mean_deviation"],
            "bound_30_s": rows[-1]["bound"],
        },
        rows=rows,
        notes=[] if kept else ["the series is not kept: that needs pyarrow"],
        recordings=kept,
    )


def _noise(name: str, series: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    return [{"series": name, **asdict(sampling_noise(series, INTERVAL, every))} for every in EVERY]


def _kept(found: list[dict[str, Any]]) -> dict[str, bytes]:
    """Return the series as a file, none without pyarrow."""
    if not installed("pyarrow"):
        return {}
    import pyarrow as pa

    times = pa.array([round(row["time"] * 1000) for row in found], pa.timestamp("ms", "UTC"))
    table = pa.table({"time": times, **{name: pa.array([row.get(name) for row in found]) for name in KEPT}})
    return {RECORDING: parquet(table)}
