"""Slurm's host lists: "node[01-04,07],gpu-a" to the names of the hosts.

Source: Slurm's `scontrol show hostnames`: several brackets multiply, a range keeps the width of its first number.
"""

from __future__ import annotations

import itertools
import math
import re

from ullage.errors import UllageError, harmless

MOST = 100_000  # hosts of one list; the largest machines have a tenth of it
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")


def expand(text: str, most: int = MOST) -> list[str]:
    """Return the hosts of a list, in its order. Raises UllageError for unbalanced brackets or more than `most` hosts.

    >>> expand("node[01-03,07],gpu-[a]")
    ['node01', 'node02', 'node03', 'node07', 'gpu-a']
    >>> expand("rack[1-2]n[8-9]")
    ['rack1n8', 'rack1n9', 'rack2n8', 'rack2n9']
    """
    hosts: list[str] = []
    for item in _items(text):
        choices = [_choices(match[1], text, most) if match[1] is not None else [match[2]] for match in _PART.finditer(item)]
        if "".join(match[0] for match in _PART.finditer(item)) != item:
            raise UllageError(f"the host list '{harmless(text, 60)}' has unbalanced brackets")
        if len(hosts) + math.prod(len(choice) for choice in choices) > most:
            raise _too_many(text, most)
        hosts.extend("".join(parts) for parts in itertools.product(*choices))
    return hosts


def _items(text: str) -> list[str]:
    """Return the items between the commas that are outside brackets."""
    items, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    return [item.strip() for item in [*items, text[start:]] if item.strip()]


def _choices(inside: str, text: str, most: int) -> list[str]:
    found: list[str] = []
    for part in inside.split(","):
        match = re.fullmatch(r"(\d{1,12})-(\d{1,12})", part.strip(), re.ASCII)
        if match is None:
            found.append(part.strip())
            continue
        first, last = int(match[1]), int(match[2])
        if len(found) + last - first + 1 > most:
            raise _too_many(text, most)
        found.extend(str(number).zfill(len(match[1])) for number in range(first, last + 1))
    return found


def _too_many(text: str, most: int) -> UllageError:
    return UllageError(f"the host list '{harmless(text, 60)}' means more than {most:,} hosts")
