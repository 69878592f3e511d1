"""What a training run is told about its numbers: in the log, each thing once."""

from __future__ import annotations

import logging

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
