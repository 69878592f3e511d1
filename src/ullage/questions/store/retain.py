"""How much of a store was dropped because it is older?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked, read_span
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.render.store import RetainedStore

DAY = 86_400  # s


@dataclass(frozen=True, kw_only=True)
class StoreRetainQuestion:
    """Drop samples and job records older than SPAN before the newest sample. Days are dropped whole."""

    folder: str = asked("The store's folder.", metavar="FOLDER", argument=True, required=True)
    keep: float = asked(
        "How much to keep before the newest sample, in whole days (rounded up): 90d, 12w.",
        metavar="SPAN",
        read=read_span,
        required=True,
    )


def answer(question: StoreRetainQuestion, progress: Progress, command: str = "") -> RetainedStore:  # noqa: ARG001 - a question's `answer`
    """Drop what is older, and return how much that was. Raises UllageError for a folder that is no store."""
    from ullage.render.store import RetainedStore
    from ullage.store.store import Store

    return RetainedStore(Store.open(question.folder, say=progress).retain(math.ceil(question.keep / DAY)))


_EXAMPLES = """
  ullage store retain store/ --keep 90d
"""

QUESTION = register(
    RegisteredQuestion(
        name="store retain",
        asked=StoreRetainQuestion,
        noun="what a store keeps",
        answer=answer,
        shown_by="ullage.render.store:retained",
        examples=_EXAMPLES,
        read_places=lambda question: [question.folder],
        only_reads=False,
    )
)

store_retain = python_function(QUESTION)
