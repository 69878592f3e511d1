"""Means of a fleet from its published quantile functions: `python benchmarks/acmetrace.py acme_quantiles.csv`.

The file holds one column of quantiles per cluster and metric, `quantile_pct` from 0 to 100. The mean of a distribution
is the integral of its quantile function over [0, 1]. Nothing else can be had from it: a row is no GPU, so no product
of two columns means anything, and there is no OFU (AcmeTrace has no SM clock either).

Data: InternLM/AcmeTrace, CC BY 4.0: Q. Hu et al., "Characterization of Large Language Model Development in the
Datacenter", NSDI 2024. DCGM samples every 15 s, March to August 2023, two clusters of A100; quantiles only.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

METRICS = {"gpu_util_pct": "GPU_UTIL", "sm_active_pct": "SM_ACTIVE", "tensor_active_pct": "tensor activity"}
CLUSTERS = {"seren": "Seren", "kalos": "Kalos"}


def mean(quantiles: Sequence[float], values: Sequence[float]) -> float:
    """Return the mean of a distribution from its quantile function: quantiles in percent from 0 to 100, rising.

    Half of the values rise evenly from 0 to 100, the other half are 100: the mean is (50 + 100) / 2.

    >>> mean([0, 50, 100], [0, 100, 100])
    75.0
    """
    return float(np.trapezoid(values, np.asarray(quantiles) / 100))


def means(path: Path) -> dict[str, dict[str, float]]:
    """Return the mean of each metric in percent, by cluster."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: [float(row[name]) for row in rows] for name in rows[0]}
    quantiles = columns["quantile_pct"]
    return {name: {metric: mean(quantiles, columns[f"{key}_{metric}"]) for metric in METRICS} for key, name in CLUSTERS.items()}


def text(found: dict[str, dict[str, float]]) -> str:
    """Return the table of means, a cluster a line."""
    lines = [f"{'mean over all samples':<24}" + "".join(f"{title:>17}" for title in METRICS.values())]
    lines += [f"{cluster:<24}" + "".join(f"{values[metric]:>15.1f} %" for metric in METRICS) for cluster, values in found.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/acmetrace.py acme_quantiles.csv")
    print(text(means(Path(sys.argv[1]))))
    print("data: AcmeTrace (Hu et al., NSDI 2024), CC BY 4.0")
