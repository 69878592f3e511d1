"""What the service says of itself on stderr: a line an event, for people or for programs."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import IO

from ullage.errors import harmless

LOG_FORMS = ("text", "json")


class ServiceLog:
    """A log of events, each with what is known of it; lines of several threads don't mix."""

    def __init__(self, form: str = "text", stream: IO[str] | None = None, clock: Callable[[], float] = time.time) -> None:
        self._form, self._stream, self._clock = form, stream or sys.stderr, clock
        self._lock = threading.Lock()

    def __call__(self, event: str, facts: Mapping[str, object] | None = None) -> None:
        """Write an event."""
        when = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = _as_json(when, event, facts or {}) if self._form == "json" else _as_text(when, event, facts or {})
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()


def _as_json(when: str, event: str, facts: Mapping[str, object]) -> str:
    return json.dumps({"time": when, "event": event, **facts}, default=str)


def _as_text(when: str, event: str, facts: Mapping[str, object]) -> str:
    said = " ".join(f"{name}={_word(value)}" for name, value in facts.items())
    return f"{when} {event}{' ' if said else ''}{said}"


def _word(value: object) -> str:
    """Return a value as one word, in quotes where it has blanks.

    >>> _word("a b"), _word(12), _word("/jobs")
    ('"a b"', '12', '/jobs')
    """
    text = harmless(str(value), 1000)
    return json.dumps(text, ensure_ascii=False) if not text or any(sign in text for sign in ' "=') else text
