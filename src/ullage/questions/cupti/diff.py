"""Which counter metrics came and went, from a release of CUPTI to another, or from a chip to another?"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.render.counter_changes import CounterChanges, Side

_RELEASE = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, kw_only=True)
class CuptiDiffQuestion:
    """What came, went, was renamed or changed its unit, by the dictionary that comes with Ullage.

    CHIP is CUPTI's name (GH100) or a GPU's (H200).
    """

    what: tuple[str, ...] = asked(
        "A chip and two releases, or two chips.",
        metavar="CHIP [RELEASE] [CHIP] [RELEASE]",
        argument=True,
        required=True,
        repeated=True,
    )
    match: str | None = asked("Only metrics whose name has this in it; * and ? stand for anything.", metavar="PATTERN")
    everything: bool = asked("List all names, not the first 20 of each kind.", False, flag="--all", display=True)

    def __post_init__(self) -> None:
        if (len(self.chips), len(self.releases)) not in ((1, 2), (2, 0), (2, 1), (2, 2)):
            raise WrongQuestionError("name a chip and two releases, or two chips")

    @property
    def releases(self) -> list[str]:
        """The releases of CUPTI that are named."""
        return [word for word in self.what if _RELEASE.fullmatch(word)]

    @property
    def chips(self) -> list[str]:
        """The chips that are named."""
        return [word for word in self.what if not _RELEASE.fullmatch(word)]


def answer(question: CuptiDiffQuestion, *_: object) -> CounterChanges:
    """Return the changes; raises UllageError for a chip or a release that the dictionary doesn't have."""
    from ullage.cupti.metric_names import changes, dictionary
    from ullage.render.counter_changes import CounterChanges

    before, after = sides(question)
    found = changes.between(dictionary.metrics(*before), dictionary.metrics(*after))
    if question.match is not None:
        found = changes.matching(found, re.compile(fnmatch.translate(f"*{question.match}*"), re.IGNORECASE))
    return CounterChanges(before, after, found, question.match)


def sides(question: CuptiDiffQuestion) -> tuple[Side, Side]:
    """Return the two sides: chips in the order given, releases after them or shared; without one the newest that knows the chip.

    >>> sides(CuptiDiffQuestion(what=("gh100", "12.0", "13.5"))), sides(CuptiDiffQuestion(what=("H200", "GB100", "13.1")))
    ((('GH100', '12.0'), ('GH100', '13.5')), (('GH100', '13.1'), ('GB100', '13.1')))
    """
    from ullage.cupti.metric_names import dictionary
    from ullage.reports.counters.counters import chip_code

    chips = [chip_code(word) for word in question.chips]
    releases = question.releases or [dictionary.releases(chip)[-1] for chip in (chips[0], chips[-1])]
    return (chips[0], releases[0]), (chips[-1], releases[-1])


_EXAMPLES = """
  ullage cupti diff GH100 12.0 13.5                      one chip, two releases
  ullage cupti diff H200 B200                            two chips, each by the newest release that knows it
  ullage cupti diff GH100 GB100 13.1 --match '*tensor*'  two chips in one release, only what concerns tensor cores
  ullage cupti diff GV100 12.9 GR100 13.5 --json         anything with anything
"""

QUESTION = register(
    RegisteredQuestion(
        name="cupti diff",
        asked=CuptiDiffQuestion,
        noun="a comparison of counters",
        answer=answer,
        shown_by="ullage.render.counter_changes",
        examples=_EXAMPLES,
    )
)

cupti_diff = python_function(QUESTION)
