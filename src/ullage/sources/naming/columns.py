"""What the columns of a table mean, by their heads: the time, the device, fields in any known name, or a long form.

One reading of heads for CSV, TSV and Parquet. Four forms are told apart:

- wide: a time, columns that say which device, and a column per field;
- long: a time, columns that say which device, a column with the field's name and one with its value;
- series: a time and a column per series, its head `DCGM_FI_DEV_SM_CLOCK{gpu="0",Hostname="n1"}`, as Grafana exports;
- anything else is refused, naming the columns that were seen.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ullage.errors import UllageError, did_you_mean, harmless
from ullage.sources.naming.fields import Alias, known
from ullage.sources.naming.labels import identity
from ullage.tables import FIELDS, IDENTITY

_TIMES = ("time", "timestamp", "datetime", "date", "ts", "unixtime", "unixtimestamp", "epoch", "timems", "timestampms", "collectiontime")
_METRICS = ("metric", "metricname", "field", "fieldname", "measurement")
_VALUES = ("value", "metricvalue", "val")
# `nvidia-smi --help-query-gpu`: names of --query-gpu columns, the unit in brackets after them
_QUERY = {
    "utilization.gpu": ("gpu_util", "%"),
    "clocks.sm": ("sm_clock", "MHz"),
    "clocks.current.sm": ("sm_clock", "MHz"),
    "clocks.mem": ("memory_clock", "MHz"),
    "clocks.current.memory": ("memory_clock", "MHz"),
    "power.draw": ("power", "W"),
    "power.draw.instant": ("power", "W"),
    "power.draw.average": ("power", "W"),
    "temperature.gpu": ("temperature", "C"),
    "memory.used": ("memory_used", "MiB"),
}
_PREFIXES = ("", "DCGM_FI_DEV_", "DCGM_FI_PROF_", "DCGM_FI_")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SERIES = re.compile(r"\s*([A-Za-z_:][A-Za-z0-9_:]*)?\s*\{(.*)\}\s*", re.DOTALL)
_PROMETHEUS = {"instance", "__name__"}  # next to these, a column `job` is the name of a scrape job, not a job id


@dataclass(frozen=True)
class ColumnLayout:
    """Which column (by position) is what. `fields`, `series` or `metric` and `value` are set, as the form is."""

    time: int
    labels: dict[int, str] = field(default_factory=dict)
    fields: dict[int, Alias] = field(default_factory=dict)
    series: dict[int, tuple[Alias, dict[str, str]]] = field(default_factory=dict)
    metric: int | None = None
    value: int | None = None

    @property
    def texts(self) -> tuple[int, ...]:
        """The columns to be read as words: who and, in the long form, what."""
        return (*self.labels, *(() if self.metric is None else (self.metric,)))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The columns to be read as numbers."""
        return (*self.fields, *self.series, *(() if self.value is None else (self.value,)))

    @property
    def needed(self) -> tuple[int, ...]:
        """Every column that is read; the others are never looked at."""
        return tuple(sorted({self.time, *self.texts, *self.numbers}))


def layout(heads: Sequence[str], where: str) -> ColumnLayout:
    """Return what each column means; raises UllageError that names the columns when it is no telemetry.

    >>> layout(["timestamp", "Hostname", "gpu", "DCGM_FI_DEV_SM_CLOCK", "note"], "a.csv").needed
    (0, 1, 2, 3)
    >>> layout(["time", "gpu", "metric", "value"], "a.csv").metric
    2
    """
    time = _find(heads, _TIMES)
    _refuse_quantiles(heads, time, where)
    if time is None:
        records = {"jobid", "job", "job_id"} & {head.strip().lower() for head in heads}
        hint = "job records go behind --jobs, beside the telemetry" if records else "name the column of times 'time'"
        raise UllageError(f"{where} has no time column; its columns are {listed(heads)}", hint)
    metric, value = _find(heads, _METRICS), _find(heads, _VALUES)
    labels = _labels(heads, {time, metric, value})
    if metric is not None and value is not None:
        return ColumnLayout(time, labels, metric=metric, value=value)
    fields = {at: alias for at, head in enumerate(heads) if at != time and (alias := meaning(head)) is not None}
    if fields:
        return ColumnLayout(time, {at: name for at, name in labels.items() if at not in fields}, fields)
    series = {at: found for at, head in enumerate(heads) if at != time and (found := _series(head)) is not None}
    if not series:
        raise UllageError(f"{where} has no column that Ullage knows; its columns are {listed(heads)}", nearest(heads))
    return ColumnLayout(time, series=series)


@functools.lru_cache(maxsize=65_536)
def meaning(head: str) -> Alias | None:
    """Return the field that a column head, a metric name or the stem of a file's name means, or None.

    The names of `fields.known`, in any case, without their DCGM prefix, or with a unit in brackets.

    >>> meaning("GPU_UTIL").field, meaning("PIPE_TENSOR_ACTIVE").field, meaning("power.draw [W]").field, meaning("note")
    ('gpu_util', 'tensor_active', 'power', None)
    """
    name = re.sub(r"\s*[\[(][^\])]*[\])]$", "", head.strip())
    if name.lower() in _QUERY:
        return Alias(head, *_QUERY[name.lower()])
    # an upper-case name is DCGM's, in DCGM's unit (SM_CLOCK is MHz); our own names are lower case, in SI units
    prefixed = tuple(prefix + name.upper() for prefix in _PREFIXES)
    for form in (name, *prefixed, name.lower()) if name.isupper() else (name, name.lower(), *prefixed):
        alias = known(form)
        if alias is not None:
            return alias
    return None


def is_time(head: str) -> bool:
    """Return whether a column head says that the column holds times."""
    return _plain(head) in _TIMES


def listed(words: Sequence[str], most: int = 12) -> str:
    """Return the first few words for an error, quoted and harmless.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(f"'{harmless(word, 40)}'" for word in words[:most])
    return shown + (f" and {len(words) - most:,} more" if len(words) > most else "")


def nearest(words: Sequence[str]) -> str:
    """Return a hint with the known names nearest to the words."""
    for word in words[:200]:
        hint = did_you_mean(_plain_words(word), FIELDS, "ullage metrics")
        if hint.startswith("did you mean"):
            return f"'{harmless(word, 40)}': {hint}"
    return "columns are called as exporters call them (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE) or as Ullage does (tensor_active, sm_clock)"


def labels_of(text: str) -> dict[str, str]:
    r"""Return the labels inside the braces of a series' name; what is no label is passed over.

    >>> labels_of(r'gpu="0", Hostname="n\"1"')
    {'gpu': '0', 'Hostname': 'n"1'}
    """
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in _LABEL.findall(text)}


def _series(head: str) -> tuple[Alias, dict[str, str]] | None:
    match = _SERIES.fullmatch(head)
    if match is None:
        return None
    labels = labels_of(match[2])
    name = match[1] or labels.pop("__name__", "")
    alias = meaning(name) or known(name, labels)
    return None if alias is None else (alias, labels)


def _labels(heads: Sequence[str], taken: set[int | None]) -> dict[int, str]:
    """Return the columns that say which device it was, each with the label's name as `labels.identity` knows it."""
    prometheus = bool(_PROMETHEUS & {head.strip() for head in heads})
    found = {}
    for at, head in enumerate(heads):
        name = None if at in taken else _label(head.strip())
        if name is not None and not (name == "job" and prometheus):
            found[at] = name
    return found


@functools.lru_cache(maxsize=65_536)
def _label(head: str) -> str | None:
    """Return a label name that means something when this is a column's head: found by asking `identity`."""
    for name in (head, head.lower(), re.sub(r"[ .-]", "_", head.lower())):
        if name in IDENTITY.names or any(value is not None for value in identity({name: "7"}).values()):
            return name
    return None


def _find(heads: Sequence[str], words: Sequence[str]) -> int | None:
    """Return the column whose head is the first of the words that there is."""
    plain = [_plain(head) for head in heads]
    return next((plain.index(word) for word in words if word in plain), None)


def _plain(head: str) -> str:
    return re.sub(r"[^a-z0-9]", "", head.lower()) if len(head) < 200 else head


def _plain_words(head: str) -> str:
    stem = re.sub(r"^dcgm_fi_(dev|prof)_", "", head.strip().lower()[:80])
    return re.sub(r"[^a-z0-9]+", "_", stem)


def _refuse_quantiles(heads: Sequence[str], time: int | None, where: str) -> None:
    """A file of quantile functions looks like telemetry, but a row of it is no device at any time."""
    for head in heads:
        if time is None and _plain(head).startswith(("quantile", "percentile", "cdf")):
            raise UllageError(
                f"{where} holds quantile functions (column '{harmless(head, 40)}'), not samples over time",
                "a column is a distribution of its own, a row belongs to no GPU; docs/examples/acmetrace.md shows what can be said of it",
            )
