"""Readings as `ullage sample` prints them: a table an interval, and what they come to at the end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ullage.errors import harmless
from ullage.live.sampling.course import Course
from ullage.live.sampling.watched_device import Watched
from ullage.render import devices
from ullage.views.declared import Document, Ratio, Words, plain
from ullage.views.document import document
from ullage.views.notation import PERCENT, PERCENT_1, Notation
from ullage.views.numbers import factor, moment
from ullage.views.shown import ShownByView
from ullage.views.view import Column, Headline, Paragraph, Section, Table, Value, View

HEADS = ("time, UTC", "GPU", "OFU", "tensor", "SM", "util", "clock, MHz", "power, W")
MEGAHERTZ = Notation("Hz", lambda value: f"{value / 1e6:,.0f}")
WATTS = Notation("W", lambda value: f"{value:,.0f}")
_WIDTHS = (9, 12, 7, 7, 6, 6, 12, 10)


def heads() -> str:
    """Return the line above the readings."""
    return _line(HEADS)


def rows(told: Iterable[Watched], course: Course) -> list[str]:
    """Return a line for each device's last reading."""
    return [_line((moment(device.time, seconds=True)[11:], *_cells(device, course))) for device in told]


def _cells(device: Watched, course: Course) -> list[str]:
    row = device.row
    shares = [devices.share(row.get(name)) for name in ("tensor_active", "sm_active", "gpu_util")]
    return [devices.named(device, course), devices.fine(device.ofu), *shares, devices.clock(device), devices.power(device)]


def _line(cells: Iterable[str]) -> str:
    return " ".join(cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, _WIDTHS, strict=True))).rstrip()


def json_lines(told: Iterable[Watched]) -> list[str]:
    """Return a JSON object for each device's last reading, a line each: ratios in [0, 1], SI units, null for what is not known."""
    return [json.dumps(document("reading", devices.record(device)), allow_nan=False) for device in told]


@dataclass(frozen=True)
class SampledMachine(ShownByView, view="ullage.render.sample"):
    """What all readings of a machine come to, and what is to be said of them."""

    course: Course
    notes: tuple[str, ...] = ()


def view(report: SampledMachine) -> View:
    """Return what all readings come to: the answer, a row of means a device, where the shortfall goes, and the notes."""
    course = report.course
    totals = course.totals()
    seconds = (course.last - (course.start or 0)) / 1000
    factors = [f"{f.label} {factor(f.value)}" for f in course.tree().factors if f.value is not None]
    product = f"OFU {factor(totals.ofu)} = {' × '.join(factors)}" if len(factors) > 1 else ""
    columns = [Column("GPU"), Column("model"), Column("OFU", PERCENT_1), *(Column(name, PERCENT) for name in ("tensor", "SM", "util"))]
    columns += [Column("clock, MHz", MEGAHERTZ, "SM clock"), Column("power, W", WATTS, "power")]
    table = Table("means", columns, [_means(device, course) for device in course], brief=len(course))
    return View(
        kind="sample",
        subject="Sampled GPUs",
        headline=Headline(devices.headline(totals, now=False)),
        basis=[f"{devices.basis(totals)}; {seconds:,.10g} s"],
        sections=[Section("means", "Means", [table, Paragraph(product)])],
        notes=devices.notes(course, [*report.notes]),
    )


def _means(device: Watched, course: Course) -> list[Value]:
    mean = {name: found.value for name, found in device.means.items()}
    shares = [mean[name] for name in ("tensor_active", "sm_active", "gpu_util")]
    model = harmless(str(device.row.get("model", "")), 40)
    return [devices.named(device, course), model, device.mean_ofu, *shares, mean["sm_clock"], mean["power"]]


class DeviceMeansDocument(Document):
    """Means of a device over all readings, in SI units."""

    gpu: str | None
    name: str
    model: str | None
    ofu: Ratio | None
    tensor_active: Ratio | None
    sm_active: Ratio | None
    gpu_util: Ratio | None
    sm_clock: float | None
    power: float | None
    unknown: Words


class SampleDocument(Document):
    """What `ullage sample` comes to at its end, as its function in Python returns it; `--json` prints each reading instead."""

    seconds: float
    ofu: Ratio | None
    method: str | None
    gpus: float
    gpus_known: float
    ullage_gpus: float | None
    silent: int
    devices: list[DeviceMeansDocument]
    notes: list[str]


def record(report: SampledMachine) -> dict[str, Any]:
    """Return what all readings come to as plain data."""
    course, totals = report.course, report.course.totals()
    return plain(
        SampleDocument(
            seconds=(course.last - (course.start or 0)) / 1000,
            ofu=totals.ofu,
            method=None if totals.ofu is None else "exact" if totals.exact else "sampled",
            gpus=totals.gpus,
            gpus_known=totals.known,
            ullage_gpus=totals.ullage,
            silent=totals.silent,
            devices=[_means_document(device, course) for device in course],
            notes=devices.notes(course, [*report.notes]),
        )
    )


def _means_document(device: Watched, course: Course) -> DeviceMeansDocument:
    means = {name: mean.value for name, mean in device.means.items()}
    levels = {name: means[name] for name in ("tensor_active", "sm_active", "gpu_util", "sm_clock", "power")}
    named, model = devices.named(device, course), device.row.get("model")
    return DeviceMeansDocument(device.gpu, named, model, device.mean_ofu, **levels, unknown=device.unknown or None)
