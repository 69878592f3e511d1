"""How much does a store hold, of how many devices, from when to when?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register

if TYPE_CHECKING:
    from ullage.render.store import StoreContents


@dataclass(frozen=True, kw_only=True)
class StoreInfoQuestion:
    """Say how much a store holds, of how many devices, from when to when. Times in JSON are ms since 1970, UTC."""

    folder: str = asked("The store's folder.", metavar="FOLDER", argument=True, required=True, local=True)
    check: bool = asked("Read every file and compare it with what was written.", False)


def answer(question: StoreInfoQuestion, progress: Progress, *_: object) -> StoreContents:
    """Return what a store holds. Raises UllageError for a folder that is none, and under `check` for a damaged file."""
    from ullage.render.store import StoreContents
    from ullage.store.store import Store

    store = Store.open(question.folder, say=progress)
    if question.check:
        store.verify()
    return StoreContents(store.info(), question.check)


_EXAMPLES = """
  ullage store info store/
  ullage store info store/ --check
  ullage store info store/ --json | jq .bytes
"""

QUESTION = register(
    RegisteredQuestion(
        name="store info",
        asked=StoreInfoQuestion,
        noun="what a store holds",
        answer=answer,
        shown_by="ullage.render.store",
        examples=_EXAMPLES,
    )
)

store_info = python_function(QUESTION)
