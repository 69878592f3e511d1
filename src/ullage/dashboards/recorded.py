"""Panels of what the rules record, for any level: the fleet's clusters, users and namespaces, jobs, hosts.

What is recorded are sums, in GPUs, so that a ratio over a time or over several rows is one sum divided by another, as everywhere in Ullage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ullage.dashboards.dashboard import HOUR, INTERVAL, RANGE, ChosenLabel, Panel, PanelQuery, PanelRow, TableColumn, Unit
from ullage.metrics.metric import METRICS
from ullage.metrics.telemetry import LABELS
from ullage.rules.series import RecordedSeries, RecordingPlan, recorded_series

OFU = METRICS["sampled_ofu"].summary
STEPS = ("load_balance", "activity", "sm_fill", "tensor_issue")
LASTING = ("cluster", "host")  # levels whose names stay
LONGEST_TABLE = 50  # rows: who looks for more asks `ullage fleet`


@cache
def _table() -> dict[str, RecordedSeries]:
    return {one.name: one for one in recorded_series(RecordingPlan())}


def recorded(name: str) -> RecordedSeries:
    """Return a recorded series by name; KeyError (a mistake of ours) where no rule records it."""
    return _table()[name]


def step_names() -> dict[str, str]:
    """Return what a person reads for each step of the chain that the rules tell apart."""
    steps = dict.fromkeys(one.fixed["step"] for one in recorded_series(RecordingPlan()) if "step" in one.fixed)
    return {step: " × ".join(LABELS[part] for part in step.split("_x_")) for step in steps}


def words_of_label(label: str) -> dict[str, str]:
    """Return what a person reads for each value that a label of the rules has, where that is not the value itself."""
    values = dict.fromkeys(one.fixed[label] for one in recorded_series(RecordingPlan()) if label in one.fixed)
    return {value: _WORDS.get(value, value.replace("_", " ")) for value in values if "_" in value or value in _WORDS}


_WORDS = {
    "held_idle": "held but idle",
    "fp64": "FP64 pipe",
    "fp32": "FP32 pipe",
    "fp16": "FP16 pipe",
    "nvlink_tx": "NVLink, sent",
    "nvlink_rx": "NVLink, received",
    "pcie_tx": "PCIe, sent",
    "pcie_rx": "PCIe, received",
}


@dataclass(frozen=True)
class ShownSums:
    """The sums of a level (`job`, `cluster`, …) that are shown: those whose labels match what is chosen by variables, and `more`."""

    level: str
    chosen: tuple[ChosenLabel, ...]
    more: tuple[str, ...] = ()

    def series(self, what: str) -> str:
        """Return the selector of a sum: `loss_gpus`, `power_watts`, …"""
        name = f"{self.level}:ullage_{what}:sum"
        known = recorded(name).labels
        matchers = [*(one.matcher for one in self.chosen if one.label in known), *self.more]
        return f"{name}{{{', '.join(matchers)}}}" if matchers else name

    def total(self, what: str, by: Sequence[str] = (), *, hours: bool = False) -> str:
        """Return a sum over the shown time, by some labels; in GPU-hours, or to be divided by another."""
        text = f"{_sum_by(by)} (sum_over_time({self.series(what)}[{RANGE}]))"
        return f"{text} * {INTERVAL} / {HOUR}" if hours else text

    def now(self, what: str, by: Sequence[str] = ()) -> str:
        """Return a sum at each time, by some labels."""
        return f"{_sum_by(by)} ({self.series(what)})"

    def ofu(self, by: Sequence[str] = ()) -> str:
        """Return OFU over the shown time, by some labels."""
        return f"{self.total('ofu_gpus', by)} / ({self.total('measured_gpus', by)} > 0)"

    def course(self, what: str) -> str:
        """Return a sum as a course: of what lasts the mean between two points of it, so that no reading is missed.

        What comes and goes, as a job, is taken as it is at each point: its mean would leave out the time in which it was not there.
        """
        series = self.series(what)
        return f"sum (avg_over_time({series}[$__rate_interval]))" if self.level in LASTING else f"sum ({series})"

    def ofu_course(self) -> str:
        """Return OFU at each time."""
        return f"{self.course('ofu_gpus')} / ({self.course('measured_gpus')} > 0)"


def _sum_by(labels: Sequence[str]) -> str:
    return f"sum by ({', '.join(labels)})" if labels else "sum"


def headline(shown: ShownSums) -> PanelRow:
    """Return OFU, what is short of full, and of how much: figures over the shown time."""
    unsure = "Series that can't be right are in it: see the panel on trust."
    return PanelRow(
        "In the shown time",
        (
            _figure("OFU", f"{OFU} {unsure}", shown.ofu(), "ratio"),
            _figure("Short of full", "GPU-hours that all steps together take.", shown.total("loss_gpus", hours=True), "GPU-hours"),
            _figure("Observed", "GPU-hours that were reported, whoever held them.", shown.total("owned_gpus", hours=True), "GPU-hours"),
            _figure("GPUs", "GPUs that report at the end of the shown time.", shown.now("owned_gpus"), "GPUs"),
        ),
    )


def _figure(title: str, description: str, expression: str, unit: Unit) -> Panel:
    return Panel("figure", title, description, (PanelQuery(expression, title, instant=True),), unit, width=6, height=4)


def where_it_goes(shown: ShownSums) -> PanelRow:
    """Return the chain from full to OFU, as bars and over time, and whose the GPU-hours are."""
    meanings = "\n".join(f"- {LABELS[step]}: {METRICS[step].summary}" for step in STEPS)
    meanings += f"\n- {LABELS['clock']}: {METRICS['clock_efficiency'].summary}"
    lost = f"sort_desc({shown.total('loss_gpus', ['step'], hours=True)})"
    owned = shown.now("owned_gpus", ["owner"])
    return PanelRow(
        "Where it goes",
        (
            Panel(
                "bars",
                "Where it goes",
                f"GPU-hours that each step from full to OFU takes; they add up to what is short of full.\n\n{meanings}",
                (PanelQuery(lost, "{{step}}", instant=True),),
                "GPU-hours",
                names=step_names(),
            ),
            Panel(
                "stack",
                "Where GPUs are lost, over time",
                "GPUs' worth of time that each step takes. A clock above that of the stated peak gives some back: it is below zero.",
                (PanelQuery(shown.now("loss_gpus", ["step"]), "{{step}}"),),
                "GPUs",
                names=step_names(),
            ),
            Panel("course", "OFU over time", OFU, (PanelQuery(shown.ofu_course(), "OFU"),), "ratio"),
            Panel(
                "stack",
                "Whose GPUs",
                "Every GPU that reports has one owner: a job, several, a job that lets it idle, nobody, or nobody knows.",
                (PanelQuery(owned, "{{owner}}"),),
                "GPUs",
                names=words_of_label("owner"),
            ),
        ),
    )


def roofs_and_power(shown: ShownSums) -> PanelRow:
    """Return the roofs beside the tensor pipes, power, what holds clocks back, and which series can't be right."""
    heights = f"{shown.now('roof_gpus', ['roof'])} / ({shown.now('roof_measured_gpus', ['roof'])} > 0)"
    return PanelRow(
        "Roofs, power, clocks, trust",
        (
            Panel(
                "course",
                "Other roofs",
                f"{METRICS['bandwidth_utilization'].summary} And the same of pipes and links that are measured.",
                (PanelQuery(shown.ofu_course(), "tensor (OFU)"), PanelQuery(heights, "{{roof}}")),
                "ratio",
                names=words_of_label("roof"),
            ),
            Panel("course", "Power", "Power of all GPUs.", (PanelQuery(shown.course("power_watts"), "power"),), "W"),
            Panel(
                "stack",
                "GPUs whose clock is held back",
                "By heat, by a brake of the hardware, by a clock that somebody set, or by the power cap. A cap that all have is no fault.",
                (PanelQuery(shown.now("limited_gpus", ["limit"]), "{{limit}}"),),
                "GPUs",
                names=words_of_label("limit"),
            ),
            Panel(
                "stack",
                "GPUs whose readings can't be right",
                "By reason. Their readings are in the other panels too; `ullage fleet`, which looks back further, leaves them out.",
                (PanelQuery(shown.now("distrusted_gpus", ["reason"]), "{{reason}}"),),
                "GPUs",
                names=words_of_label("reason"),
            ),
        ),
    )


def ranked(title: str, shown: ShownSums, columns: dict[str, TableColumn], *, matching: str = "") -> Panel:
    """Return a table with a row for each set of the columns' labels: GPU-hours lost, GPU-hours observed, OFU; the largest loss first."""
    by = [*columns]
    worst = f"topk({LONGEST_TABLE}, {shown.total('loss_gpus', by, hours=True)})"
    also = f"and on ({', '.join(by)}) {worst}"
    observed, ofu = f"({shown.total('owned_gpus', by, hours=True)}) {also}", f"({shown.ofu(by)}) {also}"
    return Panel(
        "table",
        title,
        f"In order of the GPU-hours that fall short of full, the first {LONGEST_TABLE}. {matching}".rstrip(),
        (PanelQuery(worst, instant=True), PanelQuery(observed, instant=True), PanelQuery(ofu, instant=True)),
        width=24,
        height=10,
        columns={
            **columns,
            "1": TableColumn("Short of full", "GPU-hours"),
            "2": TableColumn("Observed", "GPU-hours"),
            "3": TableColumn("OFU", "ratio"),
        },
    )
