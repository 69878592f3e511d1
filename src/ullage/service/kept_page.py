"""The first page as it was made last, kept in a file: a service that starts again shows it at once, until there is a newer one.

It holds what is sent, and no code: HTML by the sections that it shows, JSON, and the headline. One that another release made, or that asks
something else, is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import IO, Any

import msgspec

import ullage
from ullage.service.answers import Answer, BeingMadeError
from ullage.service.live_script import LIVE_SCRIPT
from ullage.service.pages import whole_window_frame
from ullage.service.served import AskedQuestion
from ullage.store.durable import write_whole
from ullage.store.rollups import algorithm
from ullage.views.page import site_policy
from ullage.views.view import Headline, View

NAME = "first-page.msgpack"


class KeptPage(msgspec.Struct, frozen=True):
    """What is kept of an answer: `made_by` says which code made it, `pages` has its HTML by sections ("trust,noise"; "" for all)."""

    made_by: str
    words: list[tuple[str, str]]
    kind: str
    subject: str
    window: str
    headline: tuple[str, str, str, str]
    complete: bool
    version: str
    made: float
    took: float
    pages: dict[str, bytes]


@cache
def made_by() -> str:
    """Return what changes with the code that makes pages, and with what they may run."""
    return hashlib.sha256(f"{ullage.__version__} {algorithm()} {site_policy(LIVE_SCRIPT)}".encode()).hexdigest()[:16]


def keep_page(file: Path, request: AskedQuestion, answer: Answer, sections: Iterable[tuple[str, ...]]) -> None:
    """Keep an answer, as the pages with some sections show it. Raises UllageError where the disk refuses."""
    view = answer.view
    line = (view.headline.strong, view.headline.rest, view.headline.before, view.headline.aside)
    pages = {",".join(names): answer.bare_page(names, whole_window_frame()) for names in sections}
    facts = (answer.complete, answer.version, answer.made, answer.took)
    kept = KeptPage(made_by(), _words(request), view.kind, view.subject, view.window, line, *facts, pages)

    def write(into: IO[bytes]) -> None:
        into.write(msgspec.msgpack.encode(kept))

    write_whole(file.parent, file.name, write)


def restored_page(file: Path, request: AskedQuestion) -> Answer | None:
    """Return the answer to a request that was kept; None where there is none of this code, or the file is damaged."""
    try:
        kept = msgspec.msgpack.decode(file.read_bytes(), type=KeptPage)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if kept.made_by != made_by() or kept.words != _words(request):
        return None
    view = View(kind=kept.kind, subject=kept.subject, headline=Headline(*kept.headline), window=kept.window)
    answer = Answer(view, _no_record, {}, kept.complete, kept.version, kept.made, kept.took, restored=True)
    for names, page in kept.pages.items():
        answer.take_page(tuple(filter(None, names.split(","))), whole_window_frame(), page)
    return answer


def _words(request: AskedQuestion) -> list[tuple[str, str]]:
    return [(name, repr(value)) for name, value in request.words]


def _no_record() -> Any:
    raise BeingMadeError("this answer is being made", 2)
