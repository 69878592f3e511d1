"""On which chips are there counters, and which GPUs have them?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking.counters import CounterLibrary
from ullage.asking.question import RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.reports.counters.counters import Chips


@dataclass(frozen=True, kw_only=True)
class CuptiChipsQuestion(CounterLibrary):
    """The chips that CUPTI can count on, with the GPUs of `ullage gpus` that have each."""


def answer(question: CuptiChipsQuestion, *_: object) -> Chips:
    """Return the chips that a library knows, or the dictionary that comes with Ullage."""
    from ullage.cupti.counters.catalogue import source
    from ullage.reports.counters.counters import chips

    return chips(source(question.cupti))


_EXAMPLES = """
  ullage cupti chips
  ullage cupti chips --json | jq -r '.chips[] | select(.gpus != []) | .chip'
  ullage cupti chips --cupti /usr/local/cuda/extras/CUPTI/lib64     what that library knows
"""

QUESTION = register(
    RegisteredQuestion(
        name="cupti chips",
        asked=CuptiChipsQuestion,
        noun="a list of chips",
        answer=answer,
        shown_by="ullage.render.counters:chips",
        examples=_EXAMPLES,
    )
)

cupti_chips = python_function(QUESTION)
