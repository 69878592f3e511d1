"""What the host said when it started a collective: of those that it runs itself, and of kernels whose own rows don't tell.

Kernels on AMD's devices and in older profiles have no process group, sequence number or size; the operator that launched them
(`record_param_comms`) has, and both have the same "External id".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ullage.traces.kineto_meta import Metadata
from ullage.traces.kineto_part import NOT_KNOWN, Part, words

_NUMBERS = ("bytes", "sequence", "members")
_WORDS = ("operation", "group")


@dataclass(frozen=True)
class Launch:
    """What a launch tells of its collective."""

    numbers: tuple[int, ...]
    words: tuple[str | None, ...]


class Launches:
    """The launches of a file by their "External id"."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._found = {number: launch for part in parts for number, launch in _launches(part)}

    def tell(self, part: Part) -> Part:
        """Return rows as they are yielded: collectives with what they lack filled in from their launches."""
        if "external" not in part.numbers:
            return part
        numbers = {name: values for name, values in part.numbers.items() if name != "external"}
        launches = [self._found.get(number) for number in part.numbers["external"].tolist()]
        if not any(launches):
            return replace(part, numbers=numbers)
        for place, name in enumerate(_NUMBERS):
            told = np.array([launch.numbers[place] if launch else NOT_KNOWN for launch in launches], numbers[name].dtype)
            numbers[name] = np.where(numbers[name] < 0, told, numbers[name])
        filled = dict(part.words)
        for place, name in enumerate(_WORDS):
            own = part.words[name].values()
            spoken = [word or (launch.words[place] if launch else None) for word, launch in zip(own, launches, strict=True)]
            filled[name] = words(spoken, {})
        return replace(part, numbers=numbers, words=filled)


def _launches(part: Part) -> list[tuple[int, Launch]]:
    external = part.numbers["external"].tolist()
    whole = zip(*(part.numbers[name].tolist() for name in _NUMBERS), strict=True)
    spoken = zip(*(part.words[name].values() for name in _WORDS), strict=True)
    return [(n, Launch(a, b)) for n, a, b in zip(external, whole, spoken, strict=True) if n >= 0]


def on_host(parts: Sequence[Part], metadata: Metadata) -> list[Part]:
    """Return, of the launches, the collectives that the host itself runs."""
    found = []
    for part in parts:
        groups = part.words["group"]
        hosted = np.array([*(metadata.on_host(word) for word in groups.words), metadata.on_host(None)], bool)[groups.codes]
        if hosted.any():
            numbers = {name: values for name, values in part.numbers.items() if name != "external"}
            found.append(replace(part, numbers=numbers).where(hosted))
    return found
