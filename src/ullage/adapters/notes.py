"""What a training run is told about its numbers: in the log, each thing once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

LOG = logging.getLogger("ullage.adapters")


class Notes:
    """Warnings that were said: a step that fails does so a million times, and the log says it once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, about: str, text: object) -> None:
        """Write a warning to the log, the first time that it is about this."""
        if about not in self._said:
            self._said.add(about)
            LOG.warning("ullage: %s", text)

    @contextmanager
    def survive_logging_failures(self) -> Iterator[None]:
        """Say once that metrics could not be logged, instead of raising what a logger raises within a `with`.

        Whatever a network or a disk may do, a run of a thousand GPUs does not end for its log.
        """
        try:
            yield
        except Exception as error:
            self.say("log", f"metrics could not be logged: {type(error).__name__}: {error}")
