"""NVML's GPM read raw: one sample after another, and what NVML makes of any two of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

ELAPSED, TENSOR = "SM_CYCLES_ELAPSED", "MMA_CYCLES_ACTIVE"  # NVML_GPM_METRIC_…, of nvidia-ml-py 13.615


@contextmanager
def sampler(nvml: Any, handle: Any) -> Iterator[Callable[[], Any]]:
    """Yield a function that takes a GPM sample and returns it; all are freed at the end."""
    taken: list[Any] = []

    def take() -> Any:
        taken.append(nvml.nvmlGpmSampleAlloc())
        nvml.nvmlGpmSampleGet(handle, taken[-1])
        return taken[-1]

    try:
        yield take
    finally:
        for sample in taken:
            with suppress(Exception):  # what was measured is not lost because a sample can't be given back
                nvml.nvmlGpmSampleFree(sample)


def told(nvml: Any, older: Any, newer: Any, names: tuple[str, ...] = (ELAPSED, TENSOR)) -> dict[str, float]:
    """Return the metrics that NVML makes of two samples. Each is asked alone: some drivers refuse all for one they don't know."""
    found: dict[str, float] = {}
    for name in names:
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        request.sample1, request.sample2 = older, newer
        request.metrics[0].metricId = getattr(nvml, f"NVML_GPM_METRIC_{name}", 0)
        try:
            answer = nvml.nvmlGpmMetricsGet(request).metrics[0] if request.metrics[0].metricId else None
        except nvml.NVMLError:
            continue
        if answer is not None and answer.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(answer.value):
            found[name] = float(answer.value)
    return found
