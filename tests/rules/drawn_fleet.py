"""A small fleet drawn at random, scraped on a grid of time: mixed models, jobs that come and go, copies, gaps, sentinels.

Numbers are such that single precision holds them (the store's), so that what is computed of them may be compared to the last digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.rules.evaluation import GivenSeries

STEP, SCRAPE = 10, 30  # s: of the input, and between scrapes
H100, A100, MYSTERY = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Mystery 9"
METRICS = {
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "sm": "DCGM_FI_PROF_SM_ACTIVE",
    "gr": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "util": "DCGM_FI_DEV_GPU_UTIL",
    "clock": "DCGM_FI_DEV_SM_CLOCK",
    "memory_clock": "DCGM_FI_DEV_MEM_CLOCK",
    "dram": "DCGM_FI_PROF_DRAM_ACTIVE",
    "fp64": "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
    "nvlink_tx": "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "power": "DCGM_FI_DEV_POWER_USAGE",
    "throttle": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "tensor_cycles": "DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL",
    "sm_cycles": "DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL",
}
SENTINELS = ("2147483632", "9223372036854775794", "NaN", "+Inf", "-1")


@dataclass(frozen=True)
class DrawnDevice:
    """A GPU, or an instance of one: its labels, and at each scrape who holds it (several: shared) and what its exporter writes."""

    labels: Mapping[str, str]
    holders: list[tuple[str, ...]]
    readings: list[dict[str, str]]


@dataclass(frozen=True)
class DrawnFleet:
    """Devices, when each host is first scraped (steps), and which scrapes of it failed."""

    devices: list[DrawnDevice]
    phase: Mapping[str, int]
    failed: Mapping[str, set[int]]
    scrapes: int

    def pages(self, start: int) -> str:
        """Return what its exporters wrote, scrape by scrape, the first at a time (s since 1970)."""
        lines = []
        for scrape in range(self.scrapes):
            for host in self.phase:
                lines.append(f"# time {start + scrape * SCRAPE + self.phase[host] * STEP}")
                for device in self.devices:
                    if device.labels["Hostname"] != host or scrape in self.failed[host]:
                        continue
                    for job in device.holders[scrape] or ("",):
                        labels = {**device.labels, **({"hpc_job": job} if job else {})}
                        for name, text in device.readings[scrape].items():
                            lines.append(f"{GivenSeries(METRICS[name], labels, ()).selector} {text}")
        return "\n".join(lines) + "\n"

    def series(self) -> list[GivenSeries]:
        """Return every series as Prometheus holds it: one that a scrape no longer has is marked as ended."""
        steps = self.scrapes * (SCRAPE // STEP)
        held: dict[tuple[str, frozenset[tuple[str, str]]], list[str]] = {}
        for device in self.devices:
            host = device.labels["Hostname"]
            alive: set[tuple[str, frozenset[tuple[str, str]]]] = set()
            for scrape in range(self.scrapes):
                at = scrape * (SCRAPE // STEP) + self.phase[host]
                now: dict[tuple[str, frozenset[tuple[str, str]]], str] = {}
                if scrape not in self.failed[host]:
                    for job in device.holders[scrape] or ("",):
                        labels = frozenset({**device.labels, **({"hpc_job": job} if job else {})}.items())
                        now |= {(METRICS[name], labels): text for name, text in device.readings[scrape].items()}
                for key, text in now.items():
                    held.setdefault(key, ["_"] * steps)[at] = text
                for key in alive - set(now):
                    held[key][at] = "stale"
                alive = set(now)
        return [GivenSeries(name, dict(labels), values) for (name, labels), values in held.items()]


@dataclass(frozen=True)
class FleetTraits:
    """What a drawn fleet may have; where it is `steady`, GPUs whose cycles are counted do not change hands."""

    gaps: bool = True
    sentinels: bool = True
    slices: bool = True
    phases: bool = True
    shared: bool = True
    counters: bool = True
    missing: bool = True
    steady: bool = False
    scrapes: int = 16
    models: tuple[str, ...] = field(default=(H100, A100, MYSTERY))


def drawn_fleet(seed: int, traits: FleetTraits = FleetTraits()) -> DrawnFleet:
    """Return a fleet of three hosts with a few GPUs each."""
    draw = np.random.default_rng(seed)
    hosts = [f"n{number}" for number in range(3)]
    phase = {host: int(draw.integers(0, 3)) if traits.phases else 0 for host in hosts}
    failed = {
        host: {int(at) for at in draw.integers(2, traits.scrapes, 2)} if traits.gaps and draw.random() < 0.5 else set() for host in hosts
    }
    devices = []
    for number, host in enumerate(hosts):
        counts = traits.counters and draw.random() < 0.5
        for index in range(int(draw.integers(1, 4))):
            model = str(draw.choice(traits.models))
            labels = {"gpu": str(index), "UUID": f"GPU-{number}-{index}", "Hostname": host, "modelName": model}
            if traits.slices and model != MYSTERY and draw.random() < 0.25:
                devices += _sliced(draw, labels, traits)
            else:
                devices.append(_device(draw, labels, traits, counts=bool(counts)))
    return DrawnFleet(devices, phase, failed, traits.scrapes)


def _sliced(draw: np.random.Generator, labels: dict[str, str], traits: FleetTraits) -> list[DrawnDevice]:
    """A GPU in MIG mode: its instances tell activity, the GPU alone its clocks, and activity of its own which counts for nothing."""
    profiles = [("3g.40gb", "1"), ("1g.10gb", "7"), ("1c.2g.20gb", "4")][: int(draw.integers(1, 4))]
    whole = _device(draw, labels, traits, counts=False, free=True)
    instances = [
        _device(draw, {**labels, "GPU_I_PROFILE": profile, "GPU_I_ID": number}, traits, counts=False, only=("tensor", "sm", "gr"))
        for profile, number in profiles
    ]
    return [whole, *instances]


def _device(
    draw: np.random.Generator, labels: dict[str, str], traits: FleetTraits, *, counts: bool, free: bool = False, only: tuple[str, ...] = ()
) -> DrawnDevice:
    lacks = {
        name for name in ("sm", "gr", "util", "dram", "fp64", "nvlink_tx", "throttle", "power") if traits.missing and draw.random() < 0.15
    }
    holders, readings = [], []
    holder: tuple[str, ...] = ()
    idle, tensor_cycles, sm_cycles = False, float(draw.integers(0, 10**9)), float(draw.integers(0, 10**9))
    summed = 132 if draw.random() < 0.5 else 1
    for _ in range(traits.scrapes):
        if draw.random() < 0.25 and not (counts and holders and traits.steady):
            holder = (
                () if free else tuple(sorted({str(job) for job in draw.integers(1, 4, 2 if traits.shared and draw.random() < 0.2 else 1)}))
            )
            holder = () if draw.random() < 0.3 else holder
            idle = bool(draw.random() < 0.3)
        clock = 2 * int(draw.integers(100, 990))  # MHz, even: exact in single precision as Hz
        level = 0.0 if idle else 1.0
        gr = int(draw.integers(1, 64)) / 64 * level
        sm = gr * int(draw.integers(0, 9)) / 8
        tensor = sm * int(draw.integers(0, 9)) / 8
        values = {
            "gr": gr, "sm": sm, "tensor": tensor, "util": 0 if idle else int(draw.integers(1, 5)) * 25, "clock": clock,
            "memory_clock": 2 * int(draw.integers(500, 1300)), "dram": int(draw.integers(0, 64)) / 64,
            "fp64": int(draw.integers(0, 64)) / 64,
            "nvlink_tx": float(int(draw.integers(0, 400)) * 2**30), "power": float(draw.integers(50, 700)),
            "throttle": int(draw.choice([0, 0, 1, 4, 8, 0x20 | 4, 0x40, 0x80, 2, 0x104])),
        }  # fmt: skip
        if counts:
            elapsed = float(draw.integers(10**9, 14 * 10**8)) * SCRAPE * summed
            sm_cycles += elapsed
            tensor_cycles += float(np.floor(elapsed * draw.random() * level))
            values |= {"tensor_cycles": tensor_cycles, "sm_cycles": sm_cycles}
        written = {name: repr(value) for name, value in values.items() if name not in lacks and (not only or name in only)}
        if traits.sentinels and draw.random() < 0.15:
            name = str(draw.choice([one for one in written if not one.endswith("cycles")]))
            written[name] = str(draw.choice(SENTINELS))
        holders.append(holder)
        readings.append(written)
    return DrawnDevice(labels, holders, readings)
