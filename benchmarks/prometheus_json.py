"""Reading Prometheus range-query JSON: readings per second, beside what a user would write with a JSON parser.

    python benchmarks/prometheus_json.py [GPUS] [READINGS]

Made-up answers in the shape of dcgm-exporter's series: GPUS series (default 2,000) of READINGS (default 120) each,
for two metrics. Each row is the best of five runs in one process.
"""

from __future__ import annotations

import io
import json
import random
import resource
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from ullage.problems import Problems
from ullage.sources.prometheus_json import Answer, blocks
from ullage.sources.readings import Readings
from ullage.sources.source import Options

START = 1_700_000_000


def answer(metric: str, gpus: int, readings: int, dice: random.Random) -> bytes:
    """Return the body of a range query: a series a GPU, a reading every 30 s."""
    series = []
    for gpu in range(gpus):
        labels = {"__name__": metric, "gpu": str(gpu % 8), "UUID": f"GPU-{gpu:032x}", "device": f"nvidia{gpu % 8}"}
        labels |= {
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": f"node-{gpu // 8:04d}",
            "instance": f"node-{gpu // 8:04d}:9400",
            "job": "dcgm",
        }
        values = ",".join(f'[{START + gpu // 8 % 30 + 30 * i}.{gpu % 1000:03d},"{dice.random():.6f}"]' for i in range(readings))
        series.append(f'{{"metric":{json.dumps(labels)},"values":[{values}]}}')
    return f'{{"status":"success","data":{{"resultType":"matrix","result":[{",".join(series)}]}}}}'.encode()


def numbers(body: bytes) -> int:
    """Ullage: labels, times and values."""
    return sum(len(block.values) for block in blocks(io.BytesIO(body).read, Answer(), Problems(), "benchmark"))


def samples(bodies: list[bytes]) -> int:
    """Ullage: all the way to a record batch of samples (labels understood, values cleaned, fields side by side)."""
    readings = Readings(Options(), Problems(), "benchmark")
    for body in bodies:
        for block in blocks(io.BytesIO(body).read, Answer(), Problems(), "benchmark"):
            readings.add(block)
    count = readings.size
    readings.batch()
    return count


def plain(body: bytes, loads: Callable[[bytes], Any] = json.loads) -> int:
    """What a user would write: a JSON parser, and a float for every string."""
    count = 0
    for series in loads(body)["data"]["result"]:
        values = np.array([(stamp, float(value)) for stamp, value in series["values"]])
        count += len(values)
    return count


def rate(run: Callable[[], int]) -> float:
    """Return readings per second, the best of five."""
    best = 0.0
    for _ in range(5):
        begin = time.perf_counter()
        count = run()
        best = max(best, count / (time.perf_counter() - begin))
    return best


def main() -> None:
    """Print a table."""
    gpus, readings = (int(word) for word in (sys.argv[1:] or ["2000", "120"]))
    dice = random.Random(1)
    bodies = [answer(metric, gpus, readings, dice) for metric in ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")]
    first = bodies[0]
    print(f"{gpus:,} series of {readings:,} readings, {len(first) / 1e6:.1f} MB of JSON a metric\n")
    base = rate(lambda: plain(first))
    rows = [
        ("json.loads and float", base),
        ("ullage, numbers", rate(lambda: numbers(first))),
        ("ullage, two metrics to samples", rate(lambda: samples(bodies))),
    ]
    if find_spec("orjson"):
        import orjson

        rows.insert(1, ("orjson and float", rate(lambda: plain(first, orjson.loads))))
    for name, speed in rows:
        print(f"{name:<32}{speed / 1e6:8.2f} million readings/s {speed / base:6.1f} ×")
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
