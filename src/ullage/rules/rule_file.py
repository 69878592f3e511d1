"""The rule file: groups of recording and alerting rules, written as YAML for Prometheus and vmalert."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ullage.errors import harmless
from ullage.gpus.chip import Chip
from ullage.rules.alerts import AlertRule, alert_rules
from ullage.rules.chips import CONSTANTS, constant_query, models_of
from ullage.rules.query import duration
from ullage.rules.readings import metric_alias
from ullage.rules.series import RecordedSeries, RecordingPlan, recorded_series
from ullage.rules.unit_tests import unit_test_text
from ullage.views.shown import ShownByView

_HEADING = (
    "Generated: change the command, not this file. Units stand in brackets, [1] is a ratio; sums are in GPUs.",
    "Over a span of time divide sums: sum_over_time(job:ullage_ofu_gpus:sum[1d]) / sum_over_time(job:ullage_measured_gpus:sum[1d])",
)


@dataclass(frozen=True)
class Rule:
    """A rule as it stands in the file: what it records or the alert that it raises, its expression, and what it says beside."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    alert: bool = False
    wait: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""


@dataclass(frozen=True)
class RuleGroup:
    """Rules that are evaluated one after another, at one time."""

    name: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class RuleFile(ShownByView, view="ullage.render.rules"):
    """The rules of a fleet: its groups, how often they are evaluated (s), what is recorded, and the models of GPU that they know.

    `command` is the command line that makes the file. With `tests` it is shown as unit tests of it, for promtool.
    """

    groups: tuple[RuleGroup, ...]
    interval: float
    series: tuple[RecordedSeries, ...]
    models: Mapping[str, Chip]
    command: str
    plan: RecordingPlan
    tests: bool = False

    def __str__(self) -> str:
        """Return the file as databases read it, or its tests as promtool does: YAML."""
        if self.tests:
            return unit_test_text(self.plan, [group.name for group in self.groups], harmless(self.command, 1000))
        return yaml_text(self)

    @property
    def distinct_series(self) -> tuple[RecordedSeries, ...]:
        """What is recorded, each name once."""
        found: dict[str, RecordedSeries] = {}
        for one in self.series:
            found.setdefault(one.name, one)
        return tuple(found.values())

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, in the order in which they stand."""
        return tuple(rule for group in self.groups for rule in group.rules)


def rule_file(plan: RecordingPlan, command: str = "ullage rules", *, tests: bool = False) -> RuleFile:
    """Return the rules of a plan. Raises UllageError for a model or a metric that nobody knows."""
    for name, metric in plan.names.renamed.items():
        metric_alias(name, metric)  # also of a field that no rule reads
    models, series = models_of(plan.models, plan.vendor), recorded_series(plan)
    constants = [Rule(one.name, query, comment=one.what) for one in CONSTANTS if (query := constant_query(one, models))]
    recording = [Rule(one.name, one.query.text, one.fixed, comment=comment) for one, comment in _with_comments(series)]
    groups = [RuleGroup("ullage-models", tuple(constants)), RuleGroup("ullage", tuple(recording))]
    if plan.alerts:
        groups.append(RuleGroup("ullage-alerts", tuple(_alert(one) for one in alert_rules(plan))))
    return RuleFile(tuple(groups), plan.interval, series, models, command, plan, tests)


def _alert(one: AlertRule) -> Rule:
    words = {"summary": one.summary, "description": one.description, "command": one.command}
    wait = f"{one.minutes}m" if one.minutes else ""
    return Rule(one.name, one.query.text, {"severity": one.severity}, alert=True, wait=wait, annotations=words)


def _with_comments(series: Sequence[RecordedSeries]) -> Iterator[tuple[RecordedSeries, str]]:
    """Yield each series with what it says, the second and later ones of a name without."""
    said: set[str] = set()
    for one in series:
        yield one, "" if one.name in said else f"{one.what} [{one.unit}]"
        said.add(one.name)


def yaml_text(file: RuleFile) -> str:
    """Return the file's text; strings are quoted as JSON has them, which YAML reads, and expressions stand as they are."""
    lines = [f"# {harmless(file.command, 1000)}", *(f"# {line}" for line in _HEADING), "groups:"]
    for group in file.groups:
        lines += [f"  - name: {group.name}", f"    interval: {duration(file.interval)}", "    rules:"]
        for rule in group.rules:
            lines += _rule_lines(rule)
    return "\n".join(lines) + "\n"


def _rule_lines(rule: Rule) -> Iterator[str]:
    if rule.comment:
        yield f"      # {rule.comment}"
    yield f"      - {'alert' if rule.alert else 'record'}: {rule.name if rule.alert else json.dumps(rule.name)}"
    if rule.wait:
        yield f"        for: {rule.wait}"
    yield "        expr: |-"
    yield from (f"          {line}" for line in rule.expr.split("\n"))
    for name, words in (("labels", rule.labels), ("annotations", rule.annotations)):
        if words:
            yield f"        {name}:"
            yield from (f"          {label}: {json.dumps(text, ensure_ascii=False)}" for label, text in words.items())
