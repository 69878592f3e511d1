"""What the host said when it started a collective: of those that it runs itself, and of kernels whose own rows don't tell.

Kernels on AMD's devices and in older profiles have no process group, sequence number or size; the operator that launched them
(`record_param_comms`) has, and both have the same "External id".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ullage.traces.kineto.meta import Metadata
from ullage.traces.kineto.part import NOT_KNOWN, CodedWords, KinetoPart, NumberCodes, as_one, shared

_NUMBERS = ("bytes", "sequence", "members")
_WORDS = ("operation", "group")


class KinetoLaunches:
    """The launches of a file by their "External id"; where several bear one, the last counts."""

    def __init__(self, parts: Sequence[KinetoPart]) -> None:
        self._rows = as_one(parts) if parts else None
        external = self._rows.numbers["external"] if self._rows else np.zeros(0, np.int64)
        known = np.flatnonzero(external >= 0)
        self._places = NumberCodes(external[known], known.astype(np.int32))

    def tell(self, part: KinetoPart) -> KinetoPart:
        """Return rows as they are yielded: collectives with what they lack filled in from their launches."""
        if "external" not in part.numbers:
            return part
        numbers = {name: values for name, values in part.numbers.items() if name != "external"}
        place = self._places.of(part.numbers["external"])
        launched = place >= 0
        if self._rows is None or not launched.any():
            return replace(part, numbers=numbers)
        for name in _NUMBERS:
            lacking = launched & (numbers[name] < 0)
            numbers[name] = np.where(lacking, self._rows.numbers[name][place], numbers[name])
        filled = {name: _filled(part.words[name], self._rows.words[name], place) for name in _WORDS}
        return replace(part, numbers=numbers, words=part.words | filled)


def _filled(own: CodedWords, launches: CodedWords, place: npt.NDArray[np.int32]) -> CodedWords:
    """Return a column with the word of each row's launch, if it has one, where the row has none."""
    known: dict[str, int] = {}
    mine, theirs = shared(own, known), shared(launches, known)
    told = np.where(place >= 0, theirs[place], NOT_KNOWN)
    return CodedWords(np.where((own.codes >= 0) & own.are(len), mine, told).astype(np.int32), list(known))


def on_host(parts: Sequence[KinetoPart], metadata: Metadata) -> list[KinetoPart]:
    """Return, of the launches, the collectives that the host itself runs."""
    found = []
    for part in parts:
        groups = part.words["group"]
        hosted = np.array([*(metadata.on_host(word) for word in groups.words), metadata.on_host(None)], bool)[groups.codes]
        if hosted.any():
            numbers = {name: values for name, values in part.numbers.items() if name != "external"}
            found.append(replace(part, numbers=numbers).where(hosted))
    return found
