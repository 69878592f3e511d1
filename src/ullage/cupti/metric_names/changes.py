"""What came and went between two releases of CUPTI, or between two chips; and what only changed its name."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ullage.cupti.metric_names.dictionary import DictionaryMetric, base, metrics


@dataclass(frozen=True)
class Changes:
    """The metrics that came, went, were renamed, and those of the same name that changed kind, unit or hardware unit; and how many stayed.

    Pairs are (before, after). What was renamed is in neither `came` nor `went`.
    """

    came: tuple[DictionaryMetric, ...]
    went: tuple[DictionaryMetric, ...]
    renamed: tuple[tuple[DictionaryMetric, DictionaryMetric], ...]
    changed: tuple[tuple[DictionaryMetric, DictionaryMetric], ...]
    same: int


def between(before: Iterable[DictionaryMetric], after: Iterable[DictionaryMetric]) -> Changes:
    """Return what changed; each list by name.

    Renamed is only what is evident: the names differ in no more than "op", "subpipe" and underscores, as from
    `sm__pipe_tensor_op_hmma_cycles_active` of GH100 to `sm__pipe_tensor_subpipe_hmma_cycles_active` of GB100; the kind is the same; and no
    third name comes into question.
    """
    old, new = {metric.name: metric for metric in before}, {metric.name: metric for metric in after}
    went, came = {name: old[name] for name in sorted(old.keys() - new)}, {name: new[name] for name in sorted(new.keys() - old)}
    renamed = _renamed(went.values(), came.values())
    for first, second in renamed:
        del went[first.name], came[second.name]
    both = sorted(old.keys() & new)
    changed = tuple((old[name], new[name]) for name in both if old[name] != new[name])
    return Changes(tuple(came.values()), tuple(went.values()), renamed, changed, len(both) - len(changed))


def matching(changes: Changes, test: re.Pattern[str]) -> Changes:
    """Return the changes to metrics whose name, before or after, matches somewhere; `same` is left as it is."""
    return Changes(
        came=tuple(metric for metric in changes.came if test.search(metric.name)),
        went=tuple(metric for metric in changes.went if test.search(metric.name)),
        renamed=tuple(pair for pair in changes.renamed if any(test.search(metric.name) for metric in pair)),
        changed=tuple(pair for pair in changes.changed if test.search(pair[0].name)),
        same=changes.same,
    )


def namesake(name: str, chip: str, release: str | None = None) -> str | None:
    """Return what a chip calls a metric: its own name where the chip has it, one that differs as renamed ones do, or None.

    >>> namesake("dram__bytes_read.sum", "GH100"), namesake("dram__bytes_read.sum", "GB202")
    ('dram__bytes_read.sum', 'dram__bytes_op_read.sum')
    """
    plain = base(name)
    alike = _alike(chip, release).get(spelling(plain), [])
    found = plain if plain in alike else alike[0] if len(alike) == 1 else None
    return None if found is None else found + name[len(plain) :]


@functools.lru_cache(maxsize=8)
def _alike(chip: str, release: str | None) -> dict[str, list[str]]:
    return _grouped(metric.name for metric in metrics(chip, release))


def _grouped(names: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(spelling(name), []).append(name)
    return groups


def spelling(name: str) -> str:
    """Return a name without what renaming has been seen to change; the unit in front of the first "__" stays apart.

    >>> spelling("dram__bytes_op_read.sum") == spelling("dram__bytes_read.sum")
    True
    """
    unit, mark, rest = name.partition("__")
    return unit + mark + re.sub(r"_+", "_", re.sub(r"_(op|subpipe)(?=_)", "", f"_{rest}"))


def _renamed(went: Iterable[DictionaryMetric], came: Iterable[DictionaryMetric]) -> tuple[tuple[DictionaryMetric, DictionaryMetric], ...]:
    old, new = {metric.name: metric for metric in went}, {metric.name: metric for metric in came}
    before, after = _grouped(old), _grouped(new)
    pairs = [(old[before[key][0]], new[after[key][0]]) for key in before if len(before[key]) == len(after.get(key, ())) == 1]
    return tuple(pair for pair in pairs if pair[0].kind == pair[1].kind)
