"""The main job end to end on a simulated fleet: simulate, store, report, and check against the known answers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ullage.output_folder import output_folder
from ullage.problems import Problems
from ullage.questions.fleet import FleetQuestion, with_next_commands
from ullage.render.fleet import write
from ullage.reports.fleet.fleet import FleetReport, fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.simulate import configs, faults
from ullage.simulate.fleet import Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.store.store import Store
from ullage.views.numbers import hours as as_hours
from ullage.views.numbers import percent
from ullage.views.table import table

# What a fleet owner meets in a day; the rest of `ullage simulate --fault` would drown the picture.
FAULTS = (
    "straggler",
    "held_idle",
    "free",
    "shared",
    "throttled",
    "power_capped",
    "application_clock",
    "regression",
    "latent_moe",
    "hybrid",
    "recomputation",
    "memory_bound",
    "failing_memory",
    "failing_link",
    "application_xid",
    "stuck",
    "stale",
    "silent",
)
PRICES = {"H100": 2.5, "A100": 1.25}  # made up, to show what money looks like
CURRENCY = "USD"


@dataclass(frozen=True)
class Demo:
    """What a demonstration left behind: the report, how it compares with the planted answers, and where everything is."""

    report: FleetReport
    against_answers: list[str]
    page: Path
    store: Path
    answers: Path
    rows: int


def demo(folder: Path, *, gpus: int, hours: float, seed: int, progress: Callable[[str], None]) -> Demo:
    """Simulate a fleet into `folder`/store, report on it, write `folder`/report.html, answers.json and configs; returns what was found.

    What the last demonstration left there is replaced, and nothing else. Raises UllageError where something else is in the way.
    """
    simulation = simulated(Specification(gpus=gpus, hours=hours, seed=seed, faults=tuple(f for f in FAULTS if f in faults.FAULTS)))
    key, place = simulation.answers, folder / "store"
    with output_folder(folder, "ullage demo", ("store", "report.html", "answers.json", "configs")) as stage:
        store = Store.open(stage / "store", create=True)
        store.add_jobs(simulation.jobs())
        rows = store.append(simulation.batches(progress=lambda done: progress(f"simulating {done}"))).rows_new
        command = shlex.join(["ullage", "fleet", str(place), "--price", "H100=2.50,A100=1.25", "--currency", CURRENCY])
        question = FleetRequest(prices=PRICES, currency=CURRENCY, progress=progress, command=command)
        report = fleet(store.samples(), store.jobs(), question, Problems().lines())
        report = with_next_commands(report, FleetQuestion(sources=(str(place),), prices=PRICES, currency=CURRENCY))
        write(report, stage / "report.html")
        (stage / "answers.json").write_text(json.dumps(key, indent=2), encoding="utf-8")
        configs.write(stage / "configs")
    return Demo(report, _compare(report, key), folder / "report.html", place, folder / "answers.json", rows)


def _compare(report: FleetReport, key: dict[str, Any]) -> list[str]:
    planted = {gpu: word for gpu, word in key["faults"].items() if word != "ok"}
    found = {v.gpu: v.verdict for v in report.doubtful_series}
    right = sum(found.get(gpu) == word for gpu, word in planted.items())
    rows = [
        ["OFU of trusted series", percent(report.ofu, 2), percent(key["fleet"]["trusted_ofu"], 2)],
        ["OFU, true cycles", percent(report.ofu_all, 2), percent(key["fleet"]["ofu"], 2)],
        *([f"ledger: {owner}", as_hours(report.ledger[owner]), as_hours(time / 3_600_000)] for owner, time in key["ledger"].items()),
        ["faulty series named", f"{right}", f"{len(planted)}"],
        ["sound series accused", f"{len(set(found) - set(planted))}", "0"],
    ]
    return [table(["against the planted answers", "reported", "planted"], rows)]
