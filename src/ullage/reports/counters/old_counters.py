"""The answer of `ullage cupti map`: what stands today for metrics and events of CUPTI's old interfaces, on which chip, with which value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ullage.cupti.counters.catalogue import CounterSource, catalogue
from ullage.cupti.counters.plan import plan
from ullage.cupti.metric_names import changes, dictionary, mapping
from ullage.cupti.metric_names.mapping import Old
from ullage.errors import UllageError
from ullage.views.shown import ShownByView

_PACKED = re.compile(r"(_op_f(?:add|mul|fma))(_pred_on)")  # Blackwell's FFMA2 is counted apart from FFMA


@dataclass(frozen=True)
class Translated:
    """An old metric or event, and what its formula needs.

    `names` has each part's name on the chip that was asked for, "" where it has none; without a chip the part itself. `value` is what the
    old one would have said, None without its formula or the parts that are `missing`. `beside` are metrics of the chip that count packed
    instructions, which no chip had when the formula was written.
    """

    old: Old
    names: Mapping[str, str]
    value: float | None
    missing: tuple[str, ...]
    beside: tuple[str, ...] = ()

    @property
    def collect(self) -> list[str]:
        """The new metrics to collect."""
        return [name for name in self.names.values() if name]


@dataclass(frozen=True)
class OldCounters(ShownByView, view="ullage.render.old_counters"):
    """Old metrics and events by their new names, in the order asked.

    `reverse` is the new metric that was looked up, None where old ones were; `chip` and `release` are whose names are told, if any;
    `valued` is whether values were given. `counted` is whether passes were asked for, and `passes` how many collect all of it.
    """

    found: tuple[Translated, ...]
    reverse: str | None = None
    chip: str | None = None
    release: str | None = None
    valued: bool = False
    counted: bool = False
    passes: int | None = None


def asked(names: Iterable[str], reverse: str | None = None) -> list[Old]:
    """Return the old ones that these names and patterns mean, each once; those that a new metric stands for; or, with neither, all.

    Raises UllageError for a name that means none.
    """
    if reverse is not None:
        return list(mapping.standing_on(reverse))
    found = dict.fromkeys(old for name in names for old in mapping.matching(name))
    return list(found or mapping.every())


def translated(old: Old, chip: str | None, release: str | None, values: Mapping[str, float]) -> Translated:
    """Return what stands for one of them, on a chip (None: whichever) as a release calls it, and its value from values of new metrics.

    >>> values = {"dram__bytes_op_read.sum": 64.0}
    >>> found = translated(mapping.find("dram_read_bytes")[0], "GB202", None, values)
    >>> found.collect, found.value
    (['dram__bytes_op_read.sum'], 64.0)
    """
    names = {part: (changes.namesake(part, chip, release) or "") if chip else part for part in old.parts}
    known = {part: values.get(part, values.get(name)) for part, name in names.items()}
    found = {part: value for part, value in known.items() if value is not None}
    packed = [_PACKED.sub(r"\g<1>2\2", part) for part in old.parts if chip and _PACKED.search(part)]
    beside = tuple(name for name in packed if chip and dictionary.has(name, chip, release))
    return Translated(old, names, mapping.evaluate(old, found), mapping.missing(old, found), beside)


def passes(found: Iterable[Translated], chip: str, source: CounterSource) -> int | None:
    """Return in how many passes over ranges a chip collects all of it; None where nothing is needed, or it doesn't go together.

    Raises UllageError without a library that can be asked.
    """
    names = list(dict.fromkeys(name for each in found for name in each.collect))
    if not names:
        return None
    if source.library is None:
        raise UllageError(f"passes can't be counted: {source.reason}", "pip install 'nvidia-cuda-cupti==13.1.*'")
    return plan(source.library, chip, names, catalogue(chip, source), ("range",)).ways["range"].passes
