"""A machine for `ullage sample` and `ullage top`: GPUs whose counters grow with the clock, behind the double of NVML.

Run as a program it is the command line on such a machine: `python -m tests.live.sampled_machine sample --for 2s`.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

from tests.live.nvml_double import Gpu, Nvml
from ullage.tables import samples

T = 1_700_000_000_000  # ms
H100 = "NVIDIA H100 80GB HBM3"  # 132 SMs, tensor clock 1830 MHz
CLOCK = 1.41e9  # Hz, of every GPU


class Load:
    """GPM's answers for a GPU whose tensor pipes are active a constant share of the time; with `counted`, cycles since reboot too."""

    def __init__(self, tensor: float, *, counted: bool = True) -> None:
        self.tensor, self.counted = tensor, counted

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, number: int) -> dict[int, float]:
        gauges = {1: 200 * self.tensor, 2: 150 * self.tensor, 5: 100 * self.tensor}  # GR, SM, tensor, in percent
        cycles = time.time() * CLOCK
        return gauges | ({248: cycles, 249: cycles * 1.5 * self.tensor, 250: cycles * self.tensor} if self.counted else {})


def gpu(uuid: str, tensor: float = 0.4, **answers: object) -> Gpu:
    """Return an H100 with a constant load, 1410 MHz and 612 W."""
    return Gpu(uuid, activity=Load(tensor, counted=False), **answers)  # type: ignore[arg-type]


def rows(*told: tuple[float, dict[str, float]], gpu: str = "GPU-1", model: str = H100) -> pa.RecordBatch:
    """Return samples of one device from (seconds, fields)."""
    columns = {"time": [T + round(1000 * at) for at, _ in told], "gpu": [gpu] * len(told), "model": [model] * len(told)}
    for name in {name for _, fields in told for name in fields}:
        columns[name] = np.array([fields.get(name, np.nan) for _, fields in told], float)
    return samples(columns)


if __name__ == "__main__":
    sys.modules["pynvml"] = Nvml([gpu("GPU-a", 0.4), gpu("GPU-b", 0.2)])  # type: ignore[assignment]
    from ullage.cli import main

    main()
