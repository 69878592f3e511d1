"""Writes golden answers anew: all, or those whose names begin with one of the words given."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.golden.answers import KEPT, answer, keep, within
from tests.golden.questions import LISTS, QUESTIONS, TEXT_ALONE
from tests.golden.world import write_world


def main(prefixes: list[str]) -> None:
    """Write the answers of the names that begin so, and delete those of questions that are no more."""
    chosen = {name: words for name, words in QUESTIONS.items() if not prefixes or name.startswith(tuple(prefixes))}
    with tempfile.TemporaryDirectory() as folder:
        write_world(Path(folder) / "world")
        for name, words in chosen.items():
            started = time.process_time()
            keep(name, answer(words, Path(folder) / "world", text_alone=name in TEXT_ALONE))
            print(f"{name}: {time.process_time() - started:.1f} s", file=sys.stderr)
        for name, lines in LISTS.items():
            if not prefixes or name.startswith(tuple(prefixes)):
                with within(Path(folder) / "world"):
                    keep(name, {"text": [*lines()]})
    for path in KEPT.glob("*.txt"):
        if path.stem not in {*QUESTIONS, *LISTS}:
            path.unlink()


main(sys.argv[1:])
