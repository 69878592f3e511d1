"""Unit tests of the rules for promtool: inputs whose answer can be worked out in the head, under the names that the rules read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ullage.gpus.chip import Chip
from ullage.metrics.ofu import sampled_ofu
from ullage.rules.chips import models_of
from ullage.rules.query import duration, number
from ullage.rules.readings import TelemetryNames
from ullage.rules.series import RecordingPlan
from ullage.units import TO_SI

RULES = "ullage.rules.yml"
HOUR = 3600  # s
JOB, OTHER = "4711", "4712"


@dataclass(frozen=True)
class RuleTest:
    """A test: what it shows, the series that are scraped (with a value an interval), and what expressions must be at moments (s)."""

    name: str
    series: Mapping[str, str]
    expected: Sequence[tuple[str, float, Mapping[str, float]]]


def unit_test_text(plan: RecordingPlan, groups: Sequence[str], command: str) -> str:
    """Return the file of tests, for `promtool test rules`; it reads the rules from a file of the name `RULES` beside it."""
    lines = [f"# {command}", f"# Beside {RULES}: promtool test rules THIS_FILE", f"rule_files: [{RULES}]"]
    lines += [f"evaluation_interval: {duration(plan.interval)}", f"group_eval_order: {json.dumps(list(groups))}", "tests:"]
    for test in rule_tests(plan):
        lines += [f"  - name: {json.dumps(test.name)}", f"    interval: {duration(plan.interval)}", "    input_series:"]
        lines += [f"      - {{series: {json.dumps(series)}, values: {json.dumps(values)}}}" for series, values in test.series.items()]
        lines.append("    promql_expr_test:")
        for expression, at, samples in test.expected:
            lines += [
                f"      - expr: {json.dumps(expression)}",
                f"        eval_time: {duration(at)}",
                "        exp_samples:" if samples else "        exp_samples: []",
            ]
            lines += [f"          - {{labels: {json.dumps(labels)}, value: {number(value)}}}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"


def rule_tests(plan: RecordingPlan) -> tuple[RuleTest, ...]:
    """Return the tests of a plan; those of alerts where it has any."""
    models = models_of(plan.models, plan.vendor)
    name = plan.models[0] if plan.models else next(iter(models))
    given = _Given(plan, name, models[name])
    return (*_of_sums(given), *(_of_alerts(given) if plan.alerts else ()))


@dataclass(frozen=True)
class _Given:
    plan: RecordingPlan
    model: str
    chip: Chip

    def series(self, field: str, gpu: int, job: str = JOB) -> str:
        """Return a series of a GPU under the names of the exporter."""
        names = self.plan.names
        labels = {names.host: "n1", names.gpu: str(gpu), names.uuid: f"GPU-{gpu}", names.model: self.model, **_job_labels(names, job)}
        alias = names.aliases(field)[0]
        labels |= {alias.label: alias.values[0]} if alias.label else {}
        words = ", ".join(f"{label}={json.dumps(value)}" for label, value in labels.items())
        return f"{alias.name}{{{words}}}"

    def written(self, field: str, value: float) -> str:
        """Return a value as an exporter writes it."""
        return number(float(f"{value / TO_SI[self.plan.names.aliases(field)[0].unit]:.12g}"))

    def recorded(self, name: str, job: str = JOB, **more: str) -> str:
        """Return the name of a recorded series of a job, with its labels."""
        labels = {**_recorded_labels(self.plan.names, job), **more}
        return f"{name}{{{', '.join(f'{label}={json.dumps(labels[label])}' for label in sorted(labels))}}}"

    def steady(self, field: str, gpu: int, value: float, count: int, job: str = JOB) -> dict[str, str]:
        """Return a series that has one value at every scrape."""
        return {self.series(field, gpu, job): f"{self.written(field, value)}x{count}"}

    def scrapes(self, seconds: float) -> int:
        """Return how many scrapes there are in a time."""
        return round(seconds / self.plan.interval)


def _job_labels(names: TelemetryNames, job: str) -> dict[str, str]:
    if not job or not names.jobs:
        return {}
    parts = names.jobs[0].split("/")
    found = {label: f"{label}-1" for label in parts[:-1]} | {parts[-1]: job}
    return found | ({names.user: "ann"} if names.user else {})


def _recorded_labels(names: TelemetryNames, job: str) -> dict[str, str]:
    labels = _job_labels(names, job)
    if not labels:
        return {}
    parts = names.jobs[0].split("/")
    found = {"job_id": "/".join(labels[part] for part in parts)} | ({"user": "ann"} if names.user else {})
    return found | ({"namespace": labels[parts[0]]} if len(parts) > 1 else {})


def _of_sums(given: _Given) -> Iterator[RuleTest]:
    clock, minutes = given.chip.tensor_clock, given.scrapes(300)
    half = sampled_ofu(0.5, clock / 2, clock)
    full = sampled_ofu(0.5, clock, clock)
    at = given.plan.interval
    pair = {
        **given.steady("tensor_active", 0, 0.5, minutes),
        **given.steady("sm_clock", 0, clock / 2, minutes),
        **given.steady("tensor_active", 1, 0.5, minutes),
        **given.steady("sm_clock", 1, clock, minutes),
    }
    ofu, measured = given.recorded("job:ullage_ofu:ratio"), given.recorded("job:ullage_measured_gpus:sum")
    yield RuleTest(
        "OFU is the mean of products: half of the cycles, one GPU at half of the tensor clock and one at all of it",
        pair,
        [
            ("job:ullage_ofu:ratio", at, {ofu: (half + full) / 2}),
            ("fleet:ullage_ofu_gpus:sum", at, {"fleet:ullage_ofu_gpus:sum": half + full}),
            ("job:ullage_measured_gpus:sum", at, {measured: 2.0}),
        ],
    )
    if given.plan.names.jobs:
        yield _test_of_factors(given, minutes)
    yield RuleTest(
        "a clock that is no number takes its GPU out of the mean, and does not make it 0",
        {**pair, given.series("sm_clock", 1): f"9223372036854775794x{minutes}"},
        [("job:ullage_ofu:ratio", at, {ofu: half}), ("job:ullage_measured_gpus:sum", at, {measured: 1.0})],
    )


def _test_of_factors(given: _Given, count: int) -> RuleTest:
    """Return a test with two GPUs of one job: half of the SMs hold work, half of that time tensor pipes work, at half of the clock."""
    readings: dict[str, str] = {}
    for gpu, busy in enumerate((0.5, 0.25)):
        values = {"gr_active": busy, "sm_active": busy / 2, "tensor_active": busy / 4, "sm_clock": given.chip.tensor_clock / 2}
        for field, value in values.items():
            readings |= given.steady(field, gpu, value, count)
    chain = {"load_balance": 0.75, "activity": 0.5, "sm_fill": 0.5, "tensor_issue": 0.5, "clock": 0.5}
    factors = {given.recorded("job:ullage_factor:ratio", step=step): value for step, value in chain.items()}
    return RuleTest(
        "OFU of a job is the product of its factors: its GPUs are busy for 0.5 and 0.25 of the time, 0.75 of what the busier one is",
        readings,
        [
            ("job:ullage_factor:ratio", given.plan.interval, factors),
            ("job:ullage_ofu:ratio", given.plan.interval, {given.recorded("job:ullage_ofu:ratio"): 0.75 / 16}),
        ],
    )


def _of_alerts(given: _Given) -> Iterator[RuleTest]:
    clock, hours = given.chip.tensor_clock, given.scrapes(2 * HOUR)
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'

    def fires(alert: str) -> Mapping[str, float]:
        return {f'{{alertname="{alert}"}}': 1.0}

    def working(gpu: int, count: int = hours) -> dict[str, str]:
        return {**given.steady("tensor_active", gpu, 0.5, count), **given.steady("sm_clock", gpu, clock, count)}

    if given.plan.names.jobs:
        yield RuleTest(
            "a job that holds a GPU and does nothing for a quarter of an hour",
            {**given.steady("tensor_active", 0, 0.0, hours), **given.steady("sm_clock", 0, clock, hours)},
            [(firing, 10 * 60, {}), (firing, 16 * 60, fires("UllageHeldIdle"))],
        )
    yield RuleTest(
        "a GPU that is slowed by heat while it works",
        {**working(0), **given.steady("throttle", 0, 0x40, hours)},
        [(firing, 10 * 60, {}), (firing, 16 * 60, fires("UllageThrottled"))],
    )
    fell = given.scrapes(HOUR / 2)
    yield RuleTest(
        "a GPU that falls off the bus tells Xid 79",
        {**working(0), given.series("xid", 0): f"0x{fell} 79x{hours - fell - 1}"},
        [(firing, HOUR // 4, {}), (firing, 3 * HOUR // 4, fires("UllageSickGpu"))],
    )
    yield RuleTest(
        "a GPU goes silent, and another stays",
        {**working(0), **{series: f"{values.partition('x')[0]}x{fell} stale" for series, values in working(1).items()}},
        [(firing, HOUR // 4, {}), (firing, 75 * 60, fires("UllageTelemetryMissing"))],
    )
    yield RuleTest(
        "a GPU whose clock nobody tells",
        given.steady("tensor_active", 0, 0.5, hours),
        [(firing, 10 * 60, {}), (firing, 16 * 60, fires("UllageOfuMissing"))],
    )
