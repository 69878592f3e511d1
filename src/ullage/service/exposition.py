"""What a Prometheus reads of the service: gauges over a window that is named, counters that only grow, the service's own health."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ullage
from ullage.errors import harmless
from ullage.service.answers import AnswerBook
from ullage.service.state import ServiceState
from ullage.service.totals import TotalsBook

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]


@dataclass(frozen=True)
class MetricFamily:
    """A metric: its name without `_total`, its kind (gauge, counter, info), what it says, its unit, and its samples."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[Labels, float], ...]
    unit: str = ""


def written(families: Iterable[MetricFamily], *, openmetrics: bool = True) -> str:
    """Return metrics as OpenMetrics 1.0, or in the older text format of Prometheus (0.0.4)."""
    lines = [line for family in families if family.samples for line in _lines(family, openmetrics)]
    return "\n".join([*lines, *(["# EOF"] if openmetrics else [])]) + "\n"


def _lines(family: MetricFamily, openmetrics: bool) -> Iterator[str]:
    suffix = {"counter": "_total", "info": "_info"}.get(family.kind, "")
    name, kind = (family.name, family.kind) if openmetrics else (family.name + suffix, "gauge" if family.kind == "info" else family.kind)
    yield f"# TYPE {name} {kind}"
    if openmetrics and family.unit:
        yield f"# UNIT {name} {family.unit}"
    yield f"# HELP {name} {_escaped(family.help)}"
    for labels, value in family.samples:
        inner = ",".join(f'{label}="{_escaped(harmless(word))}"' for label, word in labels.items())
        yield f"{family.name}{suffix}{f'{{{inner}}}' if inner else ''} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else "NaN"


def fleet_families(record: Mapping[str, Any]) -> Iterator[MetricFamily]:
    """Yield the gauges of a fleet's document. What is not known is left out."""
    window = record["window"]
    yield _gauge(
        "ullage_window_seconds", "Time that the gauges of this service are over, up to the last sample.", window["hours"] * 3600, "seconds"
    )
    yield _gauge(
        "ullage_ofu_ratio",
        "Share of the peak FLOP rate that the tensor pipes delivered, of trusted series, in the window.",
        record["ofu"],
        "ratio",
    )
    yield _gauge(
        "ullage_trusted_ratio", "Share of the GPU-hours whose series can be believed, in the window.", record["trusted_share"], "ratio"
    )
    yield _gauge("ullage_gpus", "GPUs with a sample in the window.", record["gpus"])
    models = [({"model": row["key"]}, row["ofu"]) for row in record["models"] if row["ofu"] is not None]
    yield MetricFamily("ullage_model_ofu_ratio", "gauge", "OFU by GPU model, in the window.", tuple(models), "ratio")
    losses = [({"factor": row["name"]}, row["gpu_hours"] * 3600) for row in record["losses"] if row["gpu_hours"] is not None]
    yield MetricFamily("ullage_window_loss_gpu_seconds", "gauge", "GPU-seconds that a factor takes, in the window.", tuple(losses))
    verdicts = [({"verdict": name}, one["series"]) for name, one in record["trust"]["verdicts"].items()]
    yield MetricFamily("ullage_series", "gauge", "Series by whether they can be believed, in the window.", tuple(verdicts))
    findings = [({"kind": one["kind"]}, one["gpu_hours"] * 3600) for one in record["findings"]]
    yield MetricFamily("ullage_finding_gpu_seconds", "gauge", "GPU-seconds of what is worth doing, in the window.", _summed(findings))


def total_families(book: TotalsBook) -> Iterator[MetricFamily]:
    """Yield the counters."""
    totals = book.totals
    yield _counted(
        "ullage_count_failures", "Times that hours which have passed could not be read, and are still to be counted.", book.failures
    )
    if totals.since is None or totals.until is None:
        return
    yield _gauge(
        "ullage_counted_since_timestamp_seconds", "Start of the first hour that the counters hold.", totals.since / 1000, "seconds"
    )
    yield _gauge("ullage_counted_until_timestamp_seconds", "End of the last hour that the counters hold.", totals.until / 1000, "seconds")
    yield _counter("ullage_gpu_seconds", "GPU-seconds by owner; all owners add up to the time for which GPUs exist.", "owner", totals.owned)
    yield _counter("ullage_loss_gpu_seconds", "GPU-seconds of trusted series that a factor took.", "factor", totals.lost)
    yield _counter("ullage_gain_gpu_seconds", "GPU-seconds that a factor gave: a clock above that of the peak.", "factor", totals.gained)


def own_families(state: ServiceState, book: AnswerBook, answers: Mapping[int, int]) -> Iterator[MetricFamily]:
    """Yield what the service says of itself."""
    yield MetricFamily("ullage_build", "info", "The version that runs.", (({"version": ullage.__version__}, 1.0),))
    window, following = state.store.window(), state.following
    yield _gauge("ullage_ready", "1 where there is an answer.", 0.0 if state.unready() else 1.0)
    if window is not None:
        yield _gauge("ullage_watermark_timestamp_seconds", "Time of the last sample.", window[1] / 1000, "seconds")
        yield _gauge("ullage_watermark_lag_seconds", "How old the last sample is.", state.clock() - window[1] / 1000, "seconds")
    if following is not None:
        if following.last_read is not None:
            yield _gauge("ullage_last_pull_timestamp_seconds", "When the source was last read whole.", following.last_read, "seconds")
        yield _gauge("ullage_source_up", "1 where the source could be read the last time.", 0.0 if following.problem else 1.0)
        yield _gauge("ullage_writes", "1 where this process fills the store.", 1.0 if following.writes else 0.0)
        yield _counted("ullage_pulls", "Times that the source was read whole.", following.pulls)
        yield _counted("ullage_pull_failures", "Times that the source could not be read, or not to its end.", following.failures)
        yield _counted("ullage_rows", "Rows that came into the store.", following.rows)
    yield _counted("ullage_answers", "Answers to questions.", book.answered)
    yield _counted("ullage_stale_answers", "Answers that were of an older store, since the new ones took longer.", book.stale)
    yield _counted("ullage_refused_answers", "Questions that were refused, since too many waited or they took too long.", book.refused)
    yield _counted("ullage_failed_answers", "Questions that failed by a mistake of ours.", book.failed)
    requests = tuple(({"status": str(status)}, float(count)) for status, count in sorted(answers.items()))
    yield MetricFamily("ullage_requests", "counter", "HTTP requests by status.", requests)


def _gauge(name: str, help_text: str, value: float | None, unit: str = "") -> MetricFamily:
    return MetricFamily(name, "gauge", help_text, () if value is None else (({}, value),), unit)


def _counter(name: str, help_text: str, label: str, values: Mapping[str, float]) -> MetricFamily:
    return MetricFamily(name, "counter", help_text, tuple(({label: key}, value) for key, value in sorted(values.items())), "seconds")


def _counted(name: str, help_text: str, value: float) -> MetricFamily:
    return MetricFamily(name, "counter", help_text, (({}, float(value)),))


def _summed(rows: Iterable[tuple[Labels, float]]) -> tuple[tuple[Labels, float], ...]:
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in rows:
        key = tuple(labels.items())
        found[key] = found.get(key, 0.0) + value
    return tuple((dict(key), value) for key, value in found.items())
