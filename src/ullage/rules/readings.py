"""What an exporter wrote, as queries: each field in its SI unit, without what can't be true, told apart by one set of labels.

Copies of a reading (a GPU that several pods share is exported once for each) become one. What a name promises is believed here: no
reading is converted by its magnitude, as intake does; one that does not fit is left out, and `gpu:ullage_distrusted:info` says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ullage.errors import UllageError, harmless
from ullage.field import FIELDS
from ullage.rules.query import PromQuery, duration, number
from ullage.sources.naming.dcgm_names import EVERY, NEW
from ullage.sources.naming.fields import Alias, known, known_with_label
from ullage.units import TO_SI

Dialect = Literal["dcgm", "dcgm-base-units", "dcgm-both", "amd"]

PLACE = ("cluster", "host", "gpu", "uuid")  # a whole GPU
MIG = ("GPU_I_PROFILE", "GPU_I_ID")
DEVICE = (*PLACE, "model", *MIG)  # a GPU, or an instance of it
HOLDER = ("namespace", "user", "job_id")  # whose it is
SHARED = "shared"  # the `job_id` of a GPU that several jobs hold at once

# DCGM's names of what `dcgm_names` has under its old name alone
_BASE_UNITS = {
    **{name: alias.name for name, alias in EVERY.items()},
    "fp64_active": "DCGM_FI_PROF_FP64_UTIL_RATIO",
    "fp32_active": "DCGM_FI_PROF_FP32_UTIL_RATIO",
    "fp16_active": "DCGM_FI_PROF_FP16_UTIL_RATIO",
    **{name: alias.name for name, alias in NEW.items()},
}
# AMD's device-metrics-exporter; what it does not tell (cycles, links, Xids) keeps DCGM's name, which no series has
_AMD = {name: alias.name for name, alias in EVERY.items()} | {
    "tensor_active": "gpu_prof_tensor_active_percent",
    "sm_active": "gpu_prof_sm_active",
    "gr_active": "gpu_prof_gui_util_percent",
    "gpu_util": "gpu_gfx_activity",
    "dram_active": "gpu_umc_activity",
    "sm_clock": "gpu_clock",
    "memory_clock": "gpu_clock",
    "power": "gpu_package_power",
    "energy": "gpu_energy_consumed",
}
_NAMES: Mapping[str, Sequence[Mapping[str, str]]] = {
    "dcgm": ({name: alias.name for name, alias in EVERY.items()},),
    "dcgm-base-units": (_BASE_UNITS,),
    "amd": (_AMD, _AMD | {"power": "gpu_average_package_power"}, _AMD | {"power": "gpu_power_usage"}),  # older boards average
}
_LABELS_OF_AMD = {"host": "hostname", "model": "card_series", "uuid": "gpu_uuid", "gpu": "gpu_id"}
_JOBS_OF_AMD = ("job_id", "exported_namespace/exported_pod")


@dataclass(frozen=True)
class TelemetryNames:
    """What the exporters of a fleet call fields and labels.

    `renamed` gives fields other metrics than those of the dialect. `jobs` are the labels that name a job, the first that is there
    counts; several labels with a slash between them are joined so (a pod and its namespace). An empty `user` or `cluster`: none.
    """

    dialect: Dialect = "dcgm"
    renamed: Mapping[str, str] = field(default_factory=dict)
    jobs: tuple[str, ...] = ("hpc_job", "exported_namespace/exported_pod")
    user: str = ""
    cluster: str = "cluster"
    host: str = "Hostname"
    model: str = "modelName"
    uuid: str = "UUID"
    gpu: str = "gpu"

    @classmethod
    def of_dialect(cls, dialect: Dialect, **given: Any) -> TelemetryNames:
        """Return the names of a dialect, but for those that are given: an empty one is not."""
        own = {**_LABELS_OF_AMD, "jobs": _JOBS_OF_AMD} if dialect == "amd" else {}
        return cls(dialect=dialect, **{**own, **{name: value for name, value in given.items() if value}})

    def aliases(self, name: str) -> tuple[Alias, ...]:
        """Return the metrics that a field is read from: of several the first that a GPU has counts."""
        if name in self.renamed:
            return (metric_alias(name, self.renamed[name]),)
        tables = _NAMES[self.dialect] if self.dialect in _NAMES else (*_NAMES["dcgm"], *_NAMES["dcgm-base-units"])
        found = dict.fromkeys(table[name] for table in tables)
        return tuple(metric_alias(name, metric) for metric in found)


def metric_alias(name: str, metric: str) -> Alias:
    """Return what a metric means as a field. Raises UllageError where its name says that it is another."""
    alias = known(metric) or known_with_label(metric, name)
    if name not in FIELDS:
        raise UllageError(f"'{harmless(name, 40)}' is not a field of the telemetry", "`ullage metrics --fields` lists all")
    if alias is not None and alias.field != name:
        raise UllageError(f"'{harmless(metric, 80)}' is {alias.field}, not {name}", "name the metric of the field that it is")
    return alias or Alias(metric, name, FIELDS[name].unit)


def gauge(names: TelemetryNames, name: str, matchers: str = "") -> PromQuery:
    """Return a field of each device in its SI unit, with what lies outside its range (sentinels, NaN, infinities) left out."""
    lowest, highest = FIELDS[name].lowest, FIELDS[name].highest
    found = [
        _of_devices(
            names,
            _times_factor(
                f"{_selector(alias, matchers)} >= {_bound_as_written(lowest, alias)} <= {_bound_as_written(highest, alias)}",
                TO_SI[alias.unit],
            ),
            "avg" if alias.parts else "max",
        )
        for alias in names.aliases(name)
    ]
    return _first(found)


def impossible(names: TelemetryNames, name: str) -> PromQuery:
    """Return the devices whose reading of a field lies outside its range."""
    lowest, highest = FIELDS[name].lowest, FIELDS[name].highest
    found = []
    for alias in names.aliases(name):
        read = _selector(alias)
        inside = f"{read} >= {_bound_as_written(lowest, alias)} <= {_bound_as_written(highest, alias)}"
        found.append(_of_devices(names, f"({read} unless ({inside}))", "group"))
    return _first(found)


def counter_rate(names: TelemetryNames, name: str, interval: float) -> PromQuery:
    """Return the growth of a counter a second between its last two readings, of devices that still report it."""
    window = duration(4 * interval)
    found = []
    for alias in names.aliases(name):
        grown = _times_factor(f"irate({_selector(alias)}[{window}])", TO_SI[alias.unit])
        found.append(_of_devices(names, f"({grown} and {_selector(alias)})"))
    return _first(found)


def changed(names: TelemetryNames, name: str, test: str) -> PromQuery:
    """Return the devices of whose field a test holds, in which % stands for the metric."""
    return _first([_of_devices(names, f"({test.replace('%', _selector(alias))})") for alias in names.aliases(name)])


def present(names: TelemetryNames) -> PromQuery:
    """Return 1 for each device of which any gauge of activity or clock is read."""
    return _of_devices(names, _any_reading(names), "group")


def holders(names: TelemetryNames) -> PromQuery:
    """Return 1 for each device, with who holds it: `job_id` is empty where nobody does, and `SHARED` where several jobs do."""
    everyone, labels, by_device = present(names).text, (*DEVICE, *HOLDER), f"on ({', '.join(DEVICE)})"
    if not names.jobs:
        return PromQuery(everyone, labels)
    claims = PromQuery(f"\nor {by_device} ".join(_jobs_that_hold_devices(names, job) for job in names.jobs), labels)
    several = claims.grouped("count", DEVICE).compared(">", 1)
    alone = PromQuery(f"(\n{claims.text}\n)", labels).unless(several)
    shared = several.ones().labelled("job_id", SHARED)
    return PromQuery(f"\nor {by_device} ".join([alone.text, shared.text, everyone]), labels)


def _jobs_that_hold_devices(names: TelemetryNames, job: str) -> str:
    """Return 1 for each device and each job that a label, or labels with a slash between, name for it."""
    parts = job.split("/")
    copied = {} if parts == ["job_id"] else {"job_id": parts}
    if len(parts) > 1 and parts[0] != "namespace":
        copied["namespace"] = parts[:1]
    if names.user not in ("", "user"):
        copied["user"] = [names.user]
    return _of_devices(names, _any_reading(names, f'{parts[-1]}!=""'), "group", copied, HOLDER).text


def _any_reading(names: TelemetryNames, matchers: str = "") -> str:
    fields = ("tensor_active", "gr_active", "gpu_util", "sm_clock", "tensor_cycles")
    metrics = dict.fromkeys(alias.name for name in fields for alias in names.aliases(name))
    return "{" + ", ".join(filter(None, [f'__name__=~"{"|".join(metrics)}"', matchers])) + "}"


def _of_devices(
    names: TelemetryNames, text: str, how: str = "max", more: Mapping[str, Sequence[str]] | None = None, kept: Sequence[str] = ()
) -> PromQuery:
    """Return one series a device of an exporter's many. Its labels get the names that all rules use, as do `more`; `kept` ones stay."""
    given = {"cluster": names.cluster, "host": names.host, "gpu": names.gpu, "uuid": names.uuid, "model": names.model}
    copied = {**(more or {}), **{label: [own] for label, own in given.items() if own not in ("", label)}}
    labels = (*DEVICE, *kept)
    return PromQuery(f"{how} by ({', '.join(labels)}) (\n  {_with_copied_labels(text, copied)}\n)", labels)


def _with_copied_labels(text: str, copied: Mapping[str, Sequence[str]]) -> str:
    """Return series with labels under other names, several joined by a slash."""
    if not copied:
        return text
    words = [f'"{label}", "{"/" if len(own) > 1 else ""}", {", ".join(json.dumps(one) for one in own)}' for label, own in copied.items()]
    return f"{'label_join(' * len(copied)}\n    {text},\n    {'), '.join(words)})"


def _first(found: Sequence[PromQuery]) -> PromQuery:
    query = found[0]
    for other in found[1:]:
        query = query.otherwise(other)
    return query


def _times_factor(text: str, factor: float) -> str:
    return text if factor == 1 else f"({text}) * {number(factor)}"


def _bound_as_written(value: float, alias: Alias) -> str:
    """Return a bound of a field in the unit of a name: a reading is compared as it was written."""
    return number(float(f"{value / TO_SI[alias.unit]:.12g}"))


def _selector(alias: Alias, matchers: str = "") -> str:
    """Return the selector of the series that an alias means, and that other matchers fit as well."""
    every = ", ".join(filter(None, [alias.matchers, matchers]))
    return f"{alias.name}{{{every}}}" if every else alias.name
