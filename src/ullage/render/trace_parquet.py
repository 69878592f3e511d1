"""The report on a run as a tidy table: a row for each efficiency and each time of each part of the run."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ullage.checked_parquet import write_table
from ullage.reports.trace.part import RunPart
from ullage.reports.trace.trace import TraceReport
from ullage.totals import RESOURCES, DeviceTotals, HostTotals

SCHEMA = pa.schema(
    [
        pa.field("part", pa.string(), metadata={"meaning": "run, region, rank, device or step"}),
        pa.field("name", pa.string(), metadata={"meaning": "which one"}),
        pa.field("elapsed_ns", pa.int64(), metadata={"unit": "ns"}),
        pa.field("tree", pa.string(), metadata={"meaning": "host or device"}),
        pa.field("metric", pa.string(), metadata={"meaning": "an efficiency by its name, or a total: a time in s, or a count"}),
        pa.field("parent", pa.string(), metadata={"meaning": "the efficiency of which it is a factor"}),
        pa.field("unit", pa.string(), metadata={"meaning": "1 (an efficiency), s, or nothing (a count)"}),
        pa.field("value", pa.float64(), metadata={"meaning": "null: not known"}),
        pa.field("low", pa.float64(), metadata={"meaning": "the value is surely not below"}),
        pa.field("high", pa.float64(), metadata={"meaning": "the value is surely not above"}),
    ]
)


def parquet(report: TraceReport) -> bytes:
    """Return a Parquet file with all efficiencies and totals of a report; the columns' metadata says what they mean."""
    views = [("run", report.whole)]
    for part, found in (("region", report.regions), ("rank", report.ranks), ("device", report.devices), ("step", report.steps)):
        views += [(part, view) for view in found]
    rows = [{"part": part, "name": view.name, "elapsed_ns": view.elapsed, **row} for part, view in views for row in _rows(view)]
    of = {"mode": report.mode, "window": report.window, "source": report.source, "partial": str(report.partial).lower()}
    table = pa.Table.from_pylist(rows, SCHEMA.with_metadata(of))
    buffer = io.BytesIO()
    write_table(table, buffer)
    return buffer.getvalue()


def _rows(view: RunPart) -> Iterator[dict[str, Any]]:
    for name, tree, totals in (("host", view.host, view.host_totals), ("device", view.device, view.device_totals)):
        parents: dict[str, str | None] = {}
        for _, node in tree.walk() if tree is not None else ():
            parents.update((child.metric, node.metric) for child in node.children)
            bounds = {"value": node.value, "low": node.low, "high": node.high}
            yield {"tree": name, "metric": node.metric, "parent": parents.get(node.metric), "unit": "1", **bounds}
        for metric, value in _times(totals).items() if totals is not None else ():
            if metric != "elapsed":
                time = metric.endswith("_time")
                told = value / 1e9 if time else float(value)
                yield {"tree": name, "metric": metric, "unit": "s" if time else "", "value": told, "low": told, "high": told}


def _times(totals: HostTotals | DeviceTotals) -> dict[str, float]:
    """Return times and counts by name; the hosts' resources are called what they are."""
    sums = totals.sums()
    return sums if isinstance(totals, DeviceTotals) else {RESOURCES[totals.resource]: sums.pop("processes")} | sums
