"""Sums over samples, held against a loop over the rows: gauges known now and then, always or never, and counters that stand still."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from typing import Any

import ibis
import pyarrow as pa
import pytest

from tests.conftest import T0, settled_table
from tests.seeds import some
from ullage.field import CLOCK_LIMITS
from ullage.sums.devices import device_sums, time_sums

MINUTE = 60_000
GAUGES = ("tensor_active", "sm_active", "gr_active", "gpu_util", "dram_active", "fp64_active", "fp32_active", "fp16_active")
CYCLES = ("tensor_cycles_delta", "sm_cycles_delta")
OTHERS = ("sm_clock", "memory_clock", "power", "energy_delta", "throttle", "nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx")
Row = dict[str, Any]


def drawn(seed: int) -> tuple[list[Row], set[str]]:
    """Return rows of samples and which fields each of them has. Activities are parts of 64, so that all but shares of cycles is exact."""
    chance = random.Random(seed)
    often = {name: chance.choice((0, 0.5, 0.9, 1)) for name in (*GAUGES, *CYCLES, *OTHERS)}
    often["sm_cycles_delta"] = often["tensor_cycles_delta"] = (0.5, 0, 1)[seed % 3]
    rows = [_row(chance, often) for _ in range(40)]
    return rows, {name for name, share in often.items() if share == 1}


def _row(chance: random.Random, often: dict[str, float]) -> Row:
    span = chance.choice((1000, 30_000, 90_000, 150_000))
    found: Row = {"gpu": chance.choice("ab"), "job": chance.choice(("7", "8", None)), "span_ms": span}
    found["time"] = T0 // MINUTE * MINUTE + chance.choice((0, 1, 20_000, 60_000, 200_000))
    found |= {name: chance.choice((0, 0, 1, 16, 64)) / 64 for name in GAUGES}
    cycles = chance.choice((0, 1_500_000 * span, 5_000_000 * span))  # the last can only be those of several SMs
    found |= {"sm_cycles_delta": cycles, "tensor_cycles_delta": cycles // chance.choice((1, 4, 16))}
    found |= {"sm_clock": chance.choice((1.0e9, 1.5e9)), "memory_clock": 2.5e9, "power": chance.choice((100.0, 650.0))}
    found |= {"energy_delta": chance.choice((0, 64, 4096)), "throttle": chance.choice((0, 0x1, 0x4, 0x8, 0x24, 0x44, 0x100, 0x202))}
    found |= {name: chance.choice((0.0, 2.0**30)) for name in OTHERS[-4:]}
    return {name: value if chance.random() < often.get(name, 1) else None for name, value in found.items()}


def table(rows: list[Row], full: set[str]) -> Any:
    """Return the rows as an Ibis table that says which fields every row has, and which none."""
    plain = settled_table(rows)
    schema = pa.schema([field.with_nullable(field.nullable and field.name not in full) for field in plain.schema])
    found = ibis.memtable(pa.Table.from_arrays(plain.columns, schema=schema))
    nothing = [name for name in (*GAUGES, *CYCLES, *OTHERS) if all(row[name] is None for row in rows)]
    return found.mutate(**{name: ibis.null(found[name].type()) for name in nothing})


def sums(row: Row, span: float) -> Counter[str]:
    """Return what a sample adds in so many ms of its span."""
    found: Counter[str] = Counter()
    grown = span / row["span_ms"]

    def known(*names: str) -> bool:
        return all(row[name] is not None for name in names)

    def add(name: str, value: float) -> None:
        found[name] += value

    add("span_ms", span)
    for name in ("tensor_active", "sm_active", "gr_active", "gpu_util", "power"):
        if known(name):
            add(f"{name}_ms", span)
            add(f"{name}_sum", span * row[name])
    if known(*CYCLES):
        add("cycles_ms", span)
        add("tensor_cycles", row["tensor_cycles_delta"] * grown)
        add("sm_cycles", row["sm_cycles_delta"] * grown)
        add("cycles_tensor_sum", span * row["tensor_cycles_delta"] / row["sm_cycles_delta"] if row["sm_cycles_delta"] else 0)
    elif known("tensor_active", "sm_clock"):
        add("ofu_ms", span)
        add("ofu_sum", span * row["tensor_active"] * row["sm_clock"])
        add("ofu_tensor_sum", span * row["tensor_active"])
    clocks = {"memory": ("dram_active", "memory_clock")} | {n: (f"{n}_active", "sm_clock") for n in ("fp64", "fp32", "fp16")}
    for name, fields in (clocks | {name: (name,) for name in OTHERS[-4:]}).items():
        if known(*fields):
            add(f"{name}_ms", span)
            add(f"{name}_sum", span * math.prod(row[field] for field in fields))
    if known("energy_delta"):
        add("energy_ms", span)
        add("energy_sum", row["energy_delta"] * 1000 * grown)
    elif known("power"):
        add("sampled_ms", span)
        add("sampled_sum", span * row["power"])
        add("sampled_squares", span * row["power"] ** 2)
    activity = [row[name] for name in ("gr_active", "sm_active", "tensor_active", "gpu_util")]
    if all(value is None for value in activity):
        add("dark_ms", span)
    elif all((value or 0) < 0.005 for value in activity):
        add("idle_ms", span)
    if any(v is not None for v in activity[:3]) and not any(activity[:3]) and (row["gpu_util"] or 0) >= 0.5:
        add("stuck_ms", span)
    limit = next((name for name, mask in CLOCK_LIMITS.items() if (row["throttle"] or 0) & mask), None)
    if limit is not None:
        add(f"{limit}_ms", span)
        add(f"{limit}_tensor_sum", found["ofu_tensor_sum"] + found["cycles_tensor_sum"])
        add(f"{limit}_ofu_sum", found["ofu_sum"])
        add(f"{limit}_cycles", found["tensor_cycles"])
    return found


def same(found: dict[Any, Counter[str]], expected: dict[Any, Counter[str]]) -> None:
    assert found.keys() == expected.keys()
    for key, each in expected.items():
        told = found[key]
        assert {name: told.get(name, 0) for name in told.keys() & each.keys()} == pytest.approx(
            {name: each[name] for name in told.keys() & each.keys()}, rel=1e-9, abs=1e-3
        )
        assert not {name: value for name, value in told.items() if name not in each and value}


def added(rows: list[Row], keys: tuple[str, ...]) -> dict[Any, Counter[str]]:
    """Return the sums of a table's rows by some keys: whatever is a number and adds up."""
    found: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in rows:
        names = [
            n for n in row if n == "span_ms" or n.endswith(("_ms", "_sum", "_cycles", "_squares")) or n in ("tensor_cycles", "sm_cycles")
        ]
        for name in names:
            if name not in ("start_ms", "last_ms"):
                found[tuple(row[key] for key in keys)][name] += row[name] or 0
    return found


def several_sms(row: Row, rows: list[Row]) -> bool:
    """Return whether a sample's cycles pass faster than one SM's can; of cycles that are never counted nothing is said."""
    counted = all(any(each[name] is not None for each in rows) for name in CYCLES)
    return counted and (row["sm_cycles_delta"] or 0) > 4e6 * row["span_ms"]


@pytest.mark.parametrize("seed", some(range(60), 3))
def test_sums_by_device_and_job_are_those_of_a_loop(seed: int) -> None:
    rows, full = drawn(seed)
    expected: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in rows:
        expected[row["gpu"], row["job"], several_sms(row, rows)].update(sums(row, row["span_ms"]))
    found = device_sums(table(rows, full)).to_pyarrow().to_pylist()
    same(added(found, ("gpu", "job", "summed")), expected)
    told = Counter(
        ((r["tensor_active"] is not None and r["sm_clock"] is not None) or all(r[c] is not None for c in CYCLES))
        + 2 * (r["sm_active"] is not None) + 4 * (r["gr_active"] is not None)
        for r in rows
    )  # fmt: skip
    assert {code: sum(r["rows"] for r in found if r["measured"] == code) for code in {r["measured"] for r in found}} == told


@pytest.mark.parametrize("seed", some(range(60), 3))
def test_a_course_adds_up_what_lies_in_each_part_of_time(seed: int) -> None:
    rows, full = drawn(1000 + seed)
    expected: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in rows:
        start, end = row["time"] - row["span_ms"], row["time"]
        for bucket in range(start // MINUTE * MINUTE, end, MINUTE):
            inside = min(end, bucket + MINUTE) - max(start, bucket)
            if inside > 0:
                expected[bucket, several_sms(row, rows)].update(sums(row, inside))
    found = time_sums(table(rows, full), bucket_ms=MINUTE).to_pylist()
    same(added(found, ("bucket", "summed")), expected)
