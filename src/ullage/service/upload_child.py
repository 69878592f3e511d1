"""Reads one uploaded profile in a process of its own, with little memory and time: `python -m ullage.service.upload_child`.

The profile is what stands at standard input, a file without a name; the answer, JSON with the page and the document, or the problem, goes
to standard output.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what they load starts threads, and with more than one no process gives up the network
    from ullage.service.uploads import UploadAnswer

PLACE = "/proc/self/fd/0"  # where a file without a name can be opened again and again
NAMED = "the upload"  # what stands in its place in an answer
MEMORY = 3 * 2**30  # bytes of addresses; the libraries take about one of these
CPU_S = 60
FILES = 64
LARGEST_ANSWER = 32 * 2**20  # bytes, and of any file that a reader makes for itself
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
NO_NETWORK = 0x1000_0000 | 0x4000_0000  # CLONE_NEWUSER, which others need no right for, and CLONE_NEWNET


def limit_process() -> None:
    """Give this process, and those that it starts, an end: of memory, time, the size of files, and with its parent.

    It loses the network, and what a service that runs as root may do, where the system lets a process give that up.
    """
    system = ctypes.CDLL(None)
    system.unshare(NO_NETWORK)
    system.prctl(DIES_WITH_PARENT, signal.SIGKILL)
    for what, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, LARGEST_ANSWER),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # readers start a worker a processor: there is one


def answer_of(place: str) -> UploadAnswer:
    """Return the report on a profile, as a page without anything above it and as a document; or what is wrong with the profile."""
    from ullage.asking.question import QUESTIONS
    from ullage.errors import UllageError
    from ullage.service.uploads import HERE, PAGE_FRAME, UploadAnswer
    from ullage.views.document import document_text
    from ullage.views.html import html

    question = QUESTIONS["trace"]
    try:
        asked = question.question({"files": (place,)})
        report = question.answer(asked, lambda _: None, "")
        described = question.describer(asked)
        view = described.view(report)
        page, found = str(html(view, PAGE_FRAME)), document_text(view.kind, described.record(report))
    except UllageError as error:
        return UploadAnswer(problem=error.problem, hint=error.hint or "")
    except MemoryError:
        return UploadAnswer(problem="the profile takes more memory than an upload may", hint=HERE)
    return UploadAnswer(page=page, document=found)


def main() -> None:
    """Read what stands at standard input, and write what came of it."""
    limit_process()
    import msgspec

    said = msgspec.json.encode(answer_of(PLACE))
    sys.stdout.buffer.write(said.replace(PLACE.encode(), NAMED.encode()))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
