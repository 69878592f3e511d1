"""Turing (compute capability 7.5)."""

from __future__ import annotations

from ullage.gpus.chip import chip

chip(
    "Tesla T4",
    vendor="NVIDIA", architecture="Turing", compute_capability="7.5", sms=40,
    sm_clock=1.590e9, tensor_clock=1.590e9, tensor_clock_status="boost clock", flops_per_cycle={"fp16": 1024, "int8": 2048},
    bandwidth=0.320e12, memory=16e9, power=70, stated={"fp16": 65e12, "int8": 130e12},
    source="NVIDIA T4 datasheet",
    confidence="high", checked="Lightning fabric/utilities/throughput.py",
    note="at 70 W the clock under load stays far below 1590 MHz, so OFU tops out well under 1",
)  # fmt: skip
