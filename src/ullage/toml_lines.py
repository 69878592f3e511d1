"""Where in a TOML file something stands: the line of a key, and of an element of an array of tables."""

from __future__ import annotations

import re
import tomllib
from itertools import islice, pairwise


def line_of(text: str, name: str, within: tuple[int, int] | None = None) -> int | None:
    """Return the first line in which a key or a table is given, `within` lines of which the last does not count; None: in none.

    >>> line_of('port = 1\\n[defaults]\\n"by" = "user"', "by"), line_of("port = 1", "by")
    (3, None)
    """
    wanted = re.compile(rf"""\s*\[*\s*(?:[\w-]+\s*\.\s*)*["']?{re.escape(name)}["']?\s*[\].=]""")
    first, last = within or (1, len(text.splitlines()) + 1)
    lines = islice(text.splitlines(), first - 1, last - 1)
    return next((number for number, line in enumerate(lines, first) if name and wanted.match(line)), None)


def lines_of_element(text: str, name: str, number: int) -> tuple[int, int] | None:
    """Return the first line of the element of that number (from 1) of the array of tables `[[name]]`, and the first one after it.

    >>> lines_of_element("[[prices]]\\namount = 1\\n[[money.prices]]\\n[teams.a]", "prices", 2)
    (3, 4)
    """
    lines = text.splitlines()
    heads = [place for place, line in enumerate(lines, 1) if re.match(r"\s*\[", line)] + [len(lines) + 1]
    wanted = re.compile(rf"""\s*\[\[\s*(?:[\w-]+\s*\.\s*)*["']?{re.escape(name)}["']?\s*\]\]""")
    found = [(start, end) for start, end in pairwise(heads) if wanted.match(lines[start - 1])]
    return found[number - 1] if number <= len(found) else None


def syntax_mistake(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, str]:
    """Return the line of what is not TOML, which at the end of a text is its last, and what is wrong there."""
    found = re.search(r"at line (\d+)", str(error))
    line = int(found[1]) if found else max(1, len(text.splitlines()))
    return line, re.sub(r" \(at (line \d+, column \d+|end of document)\)", "", str(error))
