"""Reading Prometheus range-query JSON: readings per second, beside what a user would write with a JSON parser.

    python benchmarks/prometheus_json.py [--gpus 2000] [--readings 120] [--quick] [--json FILE]

Made-up answers in the shape of dcgm-exporter's series: one of `readings` for each GPU and metric, of two metrics. Each
figure is the median of five runs in one process.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from measure import Figure, Figures, parser, seconds
from ullage.problems import Problems
from ullage.sources.prometheus_json import PrometheusAnswer, blocks
from ullage.sources.rows.readings import Readings
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
    return sum(len(block.values) for block in blocks(io.BytesIO(body).read, PrometheusAnswer(), Problems(), "benchmark"))


def samples(bodies: list[bytes]) -> int:
    """Ullage: all the way to a record batch of samples (labels understood, values cleaned, fields side by side)."""
    readings = Readings(Options(), Problems(), "benchmark")
    for body in bodies:
        for block in blocks(io.BytesIO(body).read, PrometheusAnswer(), Problems(), "benchmark"):
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


def main() -> None:
    """Print a figure for the JSON alone, and one for all the way to samples."""
    options = parser(__doc__)
    options.add_argument("--gpus", type=int, default=2000)
    options.add_argument("--readings", type=int, default=120)
    asked = options.parse_args()
    gpus, readings = (50, 20) if asked.quick else (asked.gpus, asked.readings)
    dice = random.Random(1)
    bodies = [answer(metric, gpus, readings, dice) for metric in ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")]
    print(f"{gpus:,} series of {readings:,} readings, {len(bodies[0]) / 1e6:.1f} MB of JSON a metric")
    peers = {"json.loads and float": gpus * readings / seconds(lambda: plain(bodies[0]))}
    if find_spec("orjson"):
        import orjson

        peers["orjson and float"] = gpus * readings / seconds(lambda: plain(bodies[0], orjson.loads))
    target = None if asked.quick else 1e6
    Figures(asked.json).add(
        Figure("API JSON to numbers", gpus * readings / seconds(lambda: numbers(bodies[0])), "readings/s", peers, target),
        Figure("API JSON to samples, two metrics", 2 * gpus * readings / seconds(lambda: samples(bodies)), "readings/s", peers, target),
    )


if __name__ == "__main__":
    main()
