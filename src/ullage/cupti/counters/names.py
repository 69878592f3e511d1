"""What a metric is, and how its names are made: `unit__quantity`, `.sum` (how instances are rolled up), `.per_second` (a sub-metric)."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ullage.cupti.metric_names.dictionary import Kind, base
from ullage.errors import UllageError, did_you_mean, harmless

KINDS: tuple[Kind, ...] = ("counter", "ratio", "throughput")  # in the order of NVPW_MetricType and CUpti_MetricType
# What a name without a sub-metric most likely means; the library evaluates none without.
_USUAL = {"counter": ".sum", "ratio": ".ratio", "throughput": ".avg.pct_of_peak_sustained_elapsed"}


@dataclass(frozen=True)
class CounterMetric:
    """A metric of a chip by its base name; `unit` and `hardware` as the library calls them, `description` in its words."""

    name: str
    kind: Kind
    unit: str = ""
    hardware: str = ""
    description: str = ""


def complete(name: str, kind: Kind) -> str:
    """Return a name that can be evaluated: with the usual roll-up where it has none.

    >>> complete("sm__cycles_active", "counter"), complete("sm__cycles_active.max", "counter"), complete("sm__throughput", "throughput")
    ('sm__cycles_active.sum', 'sm__cycles_active.max', 'sm__throughput.avg.pct_of_peak_sustained_elapsed')
    """
    return name if name != base(name) else name + _USUAL[kind]


def matching(metrics: Iterable[CounterMetric], pattern: str, kind: str = "") -> list[CounterMetric]:
    """Return the metrics whose base name holds the pattern: a part of the name, a glob with * and ?, or a regular expression.

    Raises UllageError for a pattern that is neither.

    >>> metrics = [CounterMetric("sm__cycles_active", "counter"), CounterMetric("dram__bytes_read", "counter")]
    >>> [metric.name for metric in matching(metrics, "dram*")], [metric.name for metric in matching(metrics, "cycles|bytes$")]
    (['dram__bytes_read'], ['sm__cycles_active'])
    """
    found = [metric for metric in metrics if not kind or metric.kind == kind]
    if not pattern:
        return found
    if _is_glob(pattern):
        test = re.compile(fnmatch.translate(pattern), re.IGNORECASE)
        return [metric for metric in found if test.match(metric.name)]
    return [metric for metric, held in zip(found, _holding(found, pattern), strict=True) if held]


def _is_glob(pattern: str) -> bool:
    rest = re.sub(r"\.\*|\\.|\.\+", "", pattern)  # `.*` is the regular expression's, `*` alone the shell's
    return bool(re.search(r"[*?]", rest)) and not re.search(r"[\^$()|+]", pattern)


def _holding(metrics: Sequence[CounterMetric], pattern: str) -> list[bool]:
    """Return which names hold a regular expression, by Arrow's engine (RE2): no pattern keeps it busy for long."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array([metric.name for metric in metrics], pa.string())
    try:
        held: list[bool] = pc.match_substring_regex(names, pattern, ignore_case=True).to_pylist()
    except (pa.ArrowInvalid, UnicodeError) as error:
        said = str(error).removeprefix("Invalid regular expression: ")
        raise UllageError(
            f"'{harmless(pattern, 80)}' is no pattern: {harmless(said, 80)}",
            "write a part of the name, a glob (dram*), or a regular expression",
        ) from None
    return held


def resolved(asked: Sequence[str], metrics: Sequence[CounterMetric], chip: str) -> list[str]:
    """Return the complete names that were asked for, each once: globs opened, roll-ups filled in.

    Raises UllageError for one that the chip doesn't have, with the nearest it has.
    """
    known = {metric.name: metric for metric in metrics}
    names: list[str] = []
    for name in asked:
        if re.search(r"[*?]", name):
            stem, ending = _split(name)
            opened = matching(metrics, stem)
            if not opened:
                raise UllageError(f"no metric of {chip} is called like '{harmless(name, 80)}'", f"`ullage cupti metrics {chip}` lists all")
            names += [complete(metric.name + ending, metric.kind) for metric in opened]
            continue
        found = known.get(base(name))
        if found is None:
            hint = did_you_mean(base(name), known, f"ullage cupti metrics {chip}")
            raise UllageError(f"{chip} has no metric '{harmless(name, 120)}'", hint)
        names.append(complete(name, found.kind))
    return list(dict.fromkeys(names))


def _split(name: str) -> tuple[str, str]:
    """Part the roll-up and sub-metric from a glob."""
    found = re.search(r"\.(?:avg|max|min|sum|ratio|pct|max_rate)(?:\.[a-z_]+)*$", name)
    return (name[: found.start()], found[0]) if found else (name, "")
