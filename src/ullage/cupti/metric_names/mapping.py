"""What became of CUPTI's old metrics and events, which CUDA 13 no longer has: the new metric, or the formula, that stands for each.

The data (`data/legacy.tsv`) are one row a metric or event. `formula` is what NVIDIA's CUPTI guide 12.0 gives in its tables 7 and 8,
which are for compute capability 7.0. Where that doesn't give what the old one counted (sectors for bytes, a ratio for percent, reads for
writes, a sub-partition or the whole GPU for an SM, an instruction twice), or where the guide gives nothing though the new metrics have it,
`instead` is Ullage's own formula and `note` says why. What neither has stands without a formula, and the note says so.

Rows come from those tables, from the guide's lists of metrics by capability (section 2.6.1), and from what libcupti 12.9 still
enumerates. Names and formulas are NVIDIA's; the meanings are told in our own words.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from ullage.cupti.metric_names import formulas
from ullage.cupti.metric_names.changes import spelling
from ullage.cupti.metric_names.dictionary import base
from ullage.errors import UllageError, did_you_mean, harmless

FILE = "legacy.tsv"
Class = Literal["count", "bytes", "bytes/s", "ratio", "percent", "level"]  # a level is from 0 to 10


@dataclass(frozen=True)
class Old:
    """A metric or an event of the old interfaces.

    `capability` lists the compute capabilities for which the guide describes a metric ("" when for none), `kind` says what its values
    were, `formula` and `instead` are explained above.
    """

    api: Literal["metric", "event"]
    name: str
    capability: str
    kind: Class
    formula: str
    instead: str
    note: str
    meaning: str

    @property
    def used(self) -> str:
        """The formula to compute it by; "" when there is none."""
        return self.instead or self.formula

    @property
    def parts(self) -> tuple[str, ...]:
        """The new metrics to collect for it."""
        return formulas.parts(formulas.parse(self.used)) if self.used else ()


@functools.cache
def every() -> tuple[Old, ...]:
    """Return all old metrics, then all old events, by name."""
    lines = resources.files("ullage.cupti").joinpath("data", FILE).read_text("utf-8").splitlines()
    return tuple(Old(*line.split("\t")) for line in lines[1:])  # type: ignore[arg-type]


def find(name: str) -> tuple[Old, ...]:
    """Return what is called so: a metric, an event, or both (`inst_executed`). Raises UllageError, with the nearest names, for none.

    >>> [old.formula for old in find("inst_executed")]
    ['smsp__inst_executed.sum', 'sm__inst_executed.sum']
    """
    found = tuple(old for old in every() if old.name == name.casefold())
    if not found:
        if "__" in name:
            hint = f"it is named as new metrics are: `ullage cupti map --reverse {harmless(name)}` tells what it stands for"
        else:
            hint = did_you_mean(name, [old.name for old in every()], "ullage cupti map --all")
        raise UllageError(f"CUPTI never had a metric or event '{harmless(name)}'", hint)
    return found


def matching(pattern: str) -> tuple[Old, ...]:
    """Return what a shell pattern matches (`gld_*`), or what is called so; raises UllageError when nothing is."""
    if not set("*?[") & set(pattern):
        return find(pattern)
    found = tuple(old for old in every() if fnmatch.fnmatchcase(old.name, pattern.casefold()))
    if not found:
        raise UllageError(f"no old metric or event matches '{harmless(pattern)}'", "`ullage cupti map --all` lists all")
    return found


def standing_on(metric: str) -> tuple[Old, ...]:
    """Return the old metrics and events that a new metric stands for, alone or in a formula, the guide's or ours.

    Without a sub-metric ("sm__inst_executed") each of its sub-metrics counts; a chip's own spelling (`changes.namesake`) is understood.

    >>> [old.name for old in standing_on("sm__ctas_launched.sum")]
    ['sm_cta_launched']
    """
    whole = metric == base(metric)
    named = {name for old in every() for name in _names(old)}
    wanted = {name for name in named if spelling(base(name) if whole else name) == spelling(metric)}
    if not wanted:
        hint = did_you_mean(metric, named | {base(name) for name in named}, "ullage cupti map --all")
        raise UllageError(f"nothing old stands on '{harmless(metric)}'", hint)
    return tuple(old for old in every() if wanted & _names(old))


@functools.cache
def _names(old: Old) -> frozenset[str]:
    return frozenset(name for text in (old.formula, old.instead) if text for name in formulas.parts(formulas.parse(text)))


def evaluate(old: Old | str, values: Mapping[str, float]) -> float | None:
    """Return what an old metric or event would have said, from the values of new metrics by their full names.

    None when it has no formula, when a part is missing (`missing` says which), and when it divides by zero. Of a name that a metric and
    an event have, the metric is meant. A `level` comes in percent, as the new metrics are.

    >>> evaluate("warp_execution_efficiency", {"smsp__thread_inst_executed_per_inst_executed.pct": 87.5})
    87.5
    """
    row = find(old)[0] if isinstance(old, str) else old
    return formulas.value(formulas.parse(row.used), values) if row.used else None


def missing(old: Old, values: Mapping[str, float] | Sequence[str]) -> tuple[str, ...]:
    """Return the parts of an old metric's formula that aren't among `values`.

    >>> missing(find("cf_executed")[0], {"smsp__inst_executed_pipe_cbu.sum": 7})
    ('smsp__inst_executed_pipe_adu.sum',)
    """
    return tuple(part for part in old.parts if part not in values)
