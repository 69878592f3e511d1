"""How many small parts of a store became how few large ones?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.asking import asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import ENGINE_HELP, read_engine

if TYPE_CHECKING:
    from ullage.render.store import CompactedStore


@dataclass(frozen=True, kw_only=True)
class StoreCompactQuestion:
    """Merge each day's small parts into few large ones, keep their sums beside them, and remove files that nobody needs."""

    folder: str = asked("The store's folder.", metavar="FOLDER", argument=True, required=True)
    engine: str = asked(ENGINE_HELP, "duckdb", metavar="ENGINE", read=read_engine, local=True)


def answer(question: StoreCompactQuestion, progress: Progress, command: str = "") -> CompactedStore:  # noqa: ARG001 - a question's
    """Merge, and return what became of it. Raises UllageError for a folder that is no store."""
    from ullage.render.store import CompactedStore
    from ullage.store.store import Store

    store = Store.open(question.folder, say=progress, engine=question.engine)
    upkeep = store.compact()
    return CompactedStore(upkeep, store.roll_up())


_EXAMPLES = """
  ullage store compact store/
  0 * * * *  ullage store compact /var/lib/ullage     (hourly, where samples come in all day)
"""

QUESTION = register(
    RegisteredQuestion(
        name="store compact",
        asked=StoreCompactQuestion,
        noun="merging a store",
        answer=answer,
        shown_by="ullage.render.store:compacted",
        examples=_EXAMPLES,
        read_places=lambda question: [question.folder],
        only_reads=False,
    )
)

store_compact = python_function(QUESTION)
