"""The metrics of a chip, from the libcupti of this machine where there is one, else from the dictionary that Ullage brings along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.cupti.counters import perfworks
from ullage.cupti.counters.host import named
from ullage.cupti.counters.names import CounterMetric
from ullage.cupti.library import Library, find
from ullage.cupti.metric_names import dictionary
from ullage.errors import UllageError


@dataclass(frozen=True)
class CounterSource:
    """Who answers: a library (None: the dictionary alone), and a sentence that says so; `reason` tells why there is no library."""

    library: Library | None
    told: str
    reason: str = ""


@dataclass(frozen=True)
class Catalogue:
    """The metrics of a chip, and who said so. Descriptions are "" when the dictionary answers."""

    chip: str
    metrics: tuple[CounterMetric, ...]
    told: str
    by_name: Mapping[str, CounterMetric] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {metric.name: metric for metric in self.metrics})


def source(path: str | None = None) -> CounterSource:
    """Return who can be asked on this machine. Raises UllageError only where `path` names a library that can't be used."""
    try:
        library = find(path)
        _ = library.counters
    except UllageError as error:
        if path is not None:
            raise
        return CounterSource(None, _dictionary_told(), error.problem)
    return CounterSource(library, f"asked of {named(library)}")


def chips(asked: CounterSource) -> list[str]:
    """Return the chips that the library knows, or the dictionary's newest release."""
    if asked.library is not None:
        return perfworks.chips(asked.library)
    return list(dictionary.chips(dictionary.releases()[-1]))


def catalogue(chip: str, asked: CounterSource) -> Catalogue:
    """Return the metrics of a chip ("GH100"). One that the library has dropped or not learned yet comes from the dictionary.

    Raises UllageError for a chip that neither knows.
    """
    if asked.library is not None and chip in perfworks.chips(asked.library):
        try:
            with perfworks.Evaluator(asked.library, chip) as evaluator:
                return Catalogue(chip, tuple(evaluator.metrics()), asked.told)
        except perfworks.Refused:
            pass
        except UllageError:  # it names chips that it doesn't serve any more
            if chip not in dictionary.chips():
                raise
    found = dictionary.metrics(chip)
    newest = dictionary.releases(chip)[-1]
    metrics = tuple(CounterMetric(metric.name, metric.kind, metric.unit, metric.hardware) for metric in found)
    return Catalogue(chip, metrics, f"names and units as in CUPTI {newest}, from the dictionary that comes with Ullage")


def _dictionary_told() -> str:
    return f"names and units as in CUPTI {dictionary.releases()[-1]}, from the dictionary that comes with Ullage"
