"""Which rules make a Prometheus record OFU, and warn where GPUs are lost?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ullage.asking import asked, read_positive_span
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.rules.rule_file import RuleFile

SHORTEST = 1.0  # s; databases evaluate no rule more often


def read_metric_names(texts: tuple[str, ...], flag: str, now: float) -> dict[str, str]:  # noqa: ARG001 - a TextReader
    """Read metrics by the field that they are.

    >>> read_metric_names(("sm_clock=my:sm_clock:hertz",), "--metric", 0)
    {'sm_clock': 'my:sm_clock:hertz'}
    """
    found = {}
    for text in texts:
        name, _, metric = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_:][A-Za-z0-9_:]*", metric):
            raise UllageError(f"{flag} '{harmless(text, 80)}' is not FIELD=METRIC", "write sm_clock=DCGM_FI_DEV_SM_CLOCK")
        found[name.strip()] = metric
    return found


def read_interval_of_rules(text: str, flag: str, now: float) -> float:
    """Read how often rules are evaluated, in s."""
    value = read_positive_span(text, flag, now)
    if value < SHORTEST:
        raise UllageError(f"{flag} {text} is too short", "a second is the least")
    return value


def read_server(text: str, flag: str, now: float) -> str:  # noqa: ARG001 - a TextReader
    """Read an address that stands in commands: nothing in it may mean something to a shell or to a template."""
    if not re.fullmatch(r"[A-Za-z0-9+.-]+://[A-Za-z0-9._~:/@%\[\]-]+", text):
        raise UllageError(f"{flag} '{harmless(text, 80)}' is not an address", "write http://prometheus:9090")
    return text


def _label(label: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", label):
        raise UllageError(f"'{harmless(label, 60)}' is not the name of a label", "labels have letters, digits and underscores")
    return label


@dataclass(frozen=True, kw_only=True)
class RulesQuestion:
    """Recording rules for Prometheus and vmalert: OFU, where it is lost, roofs, power and trust, by GPU, job, host and fleet.

    The rules are generated from the same definitions as Ullage's own reports, and printed as YAML. They record sums beside ratios:
    over a span of time divide one sum by another, for a mean of ratios is none. Let them be evaluated as often as GPUs are scraped.
    """

    dialect: Literal["dcgm", "dcgm-base-units", "dcgm-both", "amd"] = asked(
        "What exporters call metrics: DCGM's old names, those in base units (from DCGM 4.6 on), or both; or AMD's device-metrics-exporter, "
        "which also calls labels otherwise.",
        "dcgm",
    )
    metrics: Mapping[str, str] = asked(
        "Another metric for a field, in the unit that its name says: sm_clock=my_sm_clock_hertz. `ullage metrics --fields` lists fields.",
        {},
        flag="--metric",
        metavar="FIELD=METRIC",
        read=read_metric_names,
        repeated=True,
    )
    interval: float = asked("How often rules are evaluated.", 30.0, metavar="SPAN", read=read_interval_of_rules, shown="30s")
    gpus: tuple[str, ...] = asked(
        "A model of GPU, as exporters name it; only those that are named are known then.",
        (),
        flag="--gpu",
        metavar="NAME",
        repeated=True,
        shown="every GPU of `ullage gpus`",
    )
    job_labels: tuple[str, ...] = asked(
        "The label that names a job, or several with a slash between: namespace/pod. Given again: where the first is missing.",
        (),
        flag="--job-label",
        metavar="LABEL",
        repeated=True,
        shown="hpc_job (amd: job_id), exported_namespace/exported_pod",
    )
    user_label: str = asked("The label that names a user.", "", metavar="LABEL", shown="none")
    alerts: bool = asked("Rules that warn, beside those that record.", True)
    tests: bool = asked("Unit tests of the rules for promtool, which reads them from ullage.rules.yml, in place of the rules.", False)
    server: str = asked(
        "Where the commands that alerts show read from.", "http://localhost:9090", metavar="URL", read=read_server, minor=True
    )
    cluster_label: str = asked("The label that names a cluster.", "cluster", metavar="LABEL", minor=True)
    host_label: str = asked("The label that names a host.", "", metavar="LABEL", minor=True, shown="Hostname (amd: hostname)")
    model_label: str = asked("The label that names the model.", "", metavar="LABEL", minor=True, shown="modelName (amd: card_series)")
    uuid_label: str = asked("The label with the UUID of a GPU.", "", metavar="LABEL", minor=True, shown="UUID (amd: gpu_uuid)")
    gpu_label: str = asked("The label with the number of a GPU on its host.", "", metavar="LABEL", minor=True, shown="gpu (amd: gpu_id)")


def answer(question: RulesQuestion, progress: Progress, command: str = "") -> RuleFile:  # noqa: ARG001 - a question's `answer`
    """Return the rules. Raises UllageError for a GPU that is not known, and for what is no name of a label or a metric."""
    from ullage.rules.readings import TelemetryNames
    from ullage.rules.rule_file import rule_file
    from ullage.rules.series import RecordingPlan

    given = {name: getattr(question, f"{name}_label") for name in ("user", "cluster", "host", "model", "uuid", "gpu")}
    labels = {name: _label(label) for name, label in given.items() if label}
    names = TelemetryNames.of_dialect(question.dialect, renamed=question.metrics, jobs=_job_labels(question.job_labels), **labels)
    return rule_file(
        RecordingPlan(names, question.interval, question.gpus, question.alerts, question.server),
        command or "ullage rules",
        tests=question.tests,
    )


def _job_labels(labels: Sequence[str]) -> tuple[str, ...]:
    return tuple("/".join(_label(part) for part in label.split("/")) for label in labels)


_EXAMPLES = """
  ullage rules --out ullage.rules.yml              then: rule_files: [ullage.rules.yml] in prometheus.yml
  ullage rules --gpu 'NVIDIA H100 80GB HBM3'       for a fleet of one model
  ullage rules --job-label namespace/pod           where Prometheus keeps the exporter's labels (honor_labels)
  ullage rules --dialect dcgm-base-units --interval 15s
  ullage rules --dialect amd                       for AMD's device-metrics-exporter
  ullage rules --user-label hpc_user               users beside jobs
  ullage rules --tests --out ullage.tests.yml      then: promtool test rules ullage.tests.yml
  ullage rules --only series                       what is recorded: names, units, labels
"""

QUESTION = register(
    RegisteredQuestion(
        name="rules", asked=RulesQuestion, noun="a file of rules", answer=answer, shown_by="ullage.render.rules", examples=_EXAMPLES
    )
)

rules = python_function(QUESTION)
