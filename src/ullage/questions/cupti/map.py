"""What stands today for a metric or event of CUPTI's old interfaces, or of nvprof?"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import RegisteredQuestion, python_function, register
from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.reports.counters.old_counters import OldCounters

LARGEST = 64 << 20  # bytes of a file of values


def read_values(given: tuple[str, ...], flag: str, now: float) -> dict[str, float]:  # noqa: ARG001 - a TextReader
    """Return the values of new metrics: from JSON files and from METRIC=VALUE; later ones go before earlier ones.

    >>> read_values(("sm__cycles_active.sum=1e6",), "--values", 0)
    {'sm__cycles_active.sum': 1000000.0}
    """
    values: dict[str, float] = {}
    for text in given:
        name, mark, number = text.partition("=")
        values.update(_file(Path(text)) if not mark or "__" not in name else {name.strip(): _number(number, text)})
    return values


def _file(path: Path) -> dict[str, float]:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UllageError(f"{harmless(str(path))} is larger than any file of counters", "give a JSON object of metrics and numbers")
        found = json.loads(content)
    except OSError as error:
        raise UllageError(f"{harmless(str(path))} can't be read: {error.strerror}", "give a JSON file, or METRIC=VALUE") from error
    except (ValueError, RecursionError) as error:
        raise UllageError(f"{harmless(str(path))} is no JSON: {harmless(str(error))}", "write an object of metrics and numbers") from error
    if not isinstance(found, dict):
        raise UllageError(f"{harmless(str(path))} has no object of metrics and numbers", 'write {"sm__cycles_active.sum": 1000}')
    return {name: _number(value, f"{name} in {path}") for name, value in found.items() if value is not None}


def _number(value: Any, place: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UllageError(f"'{harmless(place, 120)}' is not a number", "leave out what was not collected")
    return number


@dataclass(frozen=True, kw_only=True)
class CuptiMapQuestion:
    """Old CUPTI metrics and events by their new names, or the formula that gives them."""

    names: tuple[str, ...] = asked("Old names, or patterns.", (), metavar="[NAME|PATTERN]...", argument=True, repeated=True)
    everything: bool = asked("Every old metric and event.", False, flag="--all")
    reverse: str | None = asked("Look up a new metric: which old ones does it stand for?", metavar="METRIC")
    chip: str | None = asked(
        "Say whether this chip has the new metrics: GH100, or a GPU that has it: H200.",
        metavar="CHIP",
        suggested="ullage.cupti.metric_names.dictionary:chips",
    )
    release: str | None = asked(
        "By this CUPTI (13.1); without it the newest that knows the chip.",
        metavar="RELEASE",
        suggested="ullage.cupti.metric_names.dictionary:releases",
    )
    passes: bool = asked("Count the passes in which --chip collects them; needs a libcupti.", False)
    cupti: str | None = asked("The libcupti to ask for passes.", metavar="PATH", acts=True, shown="the one that is found")
    values: dict[str, float] = asked(
        "What was collected: a JSON object, or one value.", {}, metavar="FILE|METRIC=VALUE", read=read_values, repeated=True
    )

    def __post_init__(self) -> None:
        if sum((bool(self.names), self.everything, self.reverse is not None)) != 1:
            raise WrongQuestionError("name metrics, or --all, or --reverse METRIC")
        if (self.release or self.passes) and not self.chip:
            raise WrongQuestionError("--release and --passes need --chip")


def answer(question: CuptiMapQuestion, *_: object) -> OldCounters:
    """Return what stands for them; raises UllageError for a name that means none, and for a chip that there isn't."""
    from ullage.cupti.counters.catalogue import source
    from ullage.reports.counters import old_counters
    from ullage.reports.counters.counters import chip_code

    chip, release = question.chip and chip_code(question.chip), question.release
    asked_for = old_counters.asked(question.names, question.reverse)
    found = tuple(old_counters.translated(old, chip, release, question.values) for old in asked_for)
    passes = old_counters.passes(found, chip, source(question.cupti)) if question.passes and chip else None
    return old_counters.OldCounters(found, question.reverse, chip, release, bool(question.values), question.passes, passes)


_EXAMPLES = """
  ullage cupti map gld_efficiency                        the new metric, and what the old one was
  ullage cupti map 'l2_*' --chip B200                    all of L2, and what that chip has of it
  ullage cupti map flop_count_sp --values counters.json  the old figure, from new ones that were collected
  ullage cupti map cf_executed --values smsp__inst_executed_pipe_cbu.sum=3 --values smsp__inst_executed_pipe_adu.sum=4
  ullage cupti map --reverse sm__inst_executed.sum       the old ones that it stands for
  ullage cupti map --all --json                          every row
"""

QUESTION = register(
    RegisteredQuestion(
        name="cupti map",
        asked=CuptiMapQuestion,
        noun="a translation of old counters",
        answer=answer,
        shown_by="ullage.render.old_counters",
        examples=_EXAMPLES,
    )
)

cupti_map = python_function(QUESTION)
