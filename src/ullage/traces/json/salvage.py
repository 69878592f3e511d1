"""Damaged JSON put right: the elements of an array that can be read, and how many could not.

What writers get wrong: control characters and line breaks inside names, lone backslashes, halves of surrogate pairs, bytes that are not
UTF-8, `nan` and `inf`, a key without a value, and an end that is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

# Where one event of a trace ends and the next begins: a nested object hardly ever begins with one of these keys.
BETWEEN = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp)"\s*:)')
ERRORS = (msgspec.DecodeError, RecursionError, UnicodeError)
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_PLACE = re.compile(r"\(byte (\d+)\)$")
_TRUNCATED = "was truncated"
_CONTROL = bytes(c if c >= 32 else 32 for c in range(256))
_ESCAPE = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
# Two halves are one letter; Python writes one alone for a byte of a file's name that is not UTF-8.
_SURROGATE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_NO_NUMBER = re.compile(rb"(?i)(:\s*)[+-]?(?:nan|inf(?:inity)?)\b")
_NO_VALUE = re.compile(rb":(?=\s*[,}\]])")
_RAW = msgspec.json.Decoder(msgspec.Raw)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])

Fits = Callable[[bytes], bytes | None]


@dataclass
class Salvaged:
    """What could be read of an array's text: elements as JSON texts, how many were put right and how many left out.

    `rest` is what follows the array's closing bracket, None when there is no such bracket; `cut` says that the text ends inside
    an element; `first` is the number (from 0) and the byte of the first element that was put right or left out.
    """

    elements: list[bytes] = field(default_factory=list)
    repaired: int = 0
    dropped: int = 0
    rest: bytes | None = None
    cut: bool = False
    first: tuple[int, int] | None = None

    @property
    def text(self) -> bytes:
        """The elements as one array."""
        return b"[" + b",".join(self.elements) + b"]"

    def keep(self, element: bytes | None, fits: Fits, byte: int, repaired: bool = False) -> None:
        """Take in the element that begins at a byte if it can be used, count it as left out if not."""
        usable = fits(element) if element is not None else None
        if self.first is None and (repaired or usable is not element or usable is None):
            self.first = len(self.elements) + self.dropped, byte
        if usable is None:
            self.dropped += 1
        else:
            self.elements.append(usable)
            self.repaired += repaired or usable is not element


def salvage(text: bytes, fits: Fits) -> Salvaged:
    """Return what can be read of `text`, an array from its opening bracket on, which may lack its end.

    `fits` is handed each element that is JSON; it returns the element, or another text for it, or None when it is of no use.
    """
    found = Salvaged()
    try:
        elements = [bytes(raw) for raw in _RAWS.decode(text)]
    except ERRORS:
        _torn(text, fits, found)
    else:
        found.rest = b""
        for element in elements:
            found.keep(element, fits, 0 if found.first else max(text.find(element), 0))
    return found


def _torn(text: bytes, fits: Fits, found: Salvaged) -> None:
    start = 1
    for between in [*BETWEEN.finditer(text), None]:
        fragment = text[start : between.start() + 1] if between else text[start:]
        byte, start = start, between.end() if between else start
        if _closes(fragment):
            found.rest = fragment.lstrip()[1:]
            return
        element, rest, repair = _first(fragment)
        if element is None and between is None and rest.endswith(_TRUNCATED.encode()):
            found.cut = bool(fragment.strip())
            return
        found.keep(element, fits, byte, repair or (element is not None and not _closes(rest) and bool(rest.strip(b" \t\r\n,"))))
        if _closes(rest):
            found.rest = rest.lstrip()[1:]
            return


def _closes(text: bytes) -> bool:
    return text.lstrip().startswith(b"]")


def _first(fragment: bytes) -> tuple[bytes | None, bytes, bool]:
    """Return the first value of a text as it is or put right, what follows it, and whether it was put right."""
    why = b""
    for step in (None, _plain_controls, _doubled_backslashes, whole_surrogates, _nothing_for_no_value):
        fragment = step(fragment) if step else fragment
        element, rest = _value(fragment)
        if element is not None:
            return element, rest, step is not None
        why = rest
    return None, why, False


def _value(text: bytes) -> tuple[bytes | None, bytes]:
    try:
        _RAW.decode(text)
    except ERRORS as error:
        trailing = _TRAILING.search(str(error))
        if trailing is None:
            return None, str(error).encode()
        end = int(trailing[1]) - 1
        return text[:end], text[end:]
    return text, b""


def _plain_controls(text: bytes) -> bytes:
    return text.translate(_CONTROL)


def _doubled_backslashes(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda m: m[0] if m[1] else rb"\\", text)


def whole_surrogates(text: bytes) -> bytes:
    r"""Return a text with halves of surrogate pairs that stand alone made visible as replacement characters.

    >>> whole_surrogates(rb'"\ud83d\ude00 \ud800 \\ud800"')
    b'"\\ud83d\\ude00 \\ufffd \\\\ud800"'
    """
    return _SURROGATE.sub(lambda m: rb"\ufffd" if m[1] else m[0], text)


def _nothing_for_no_value(text: bytes) -> bytes:
    return _NO_VALUE.sub(b":null", _NO_NUMBER.sub(rb"\1null", text))


def valid_letters(text: bytes) -> bytes:
    """Return a text with what is not UTF-8 made visible as replacement characters."""
    return text.decode("utf-8", "replace").encode()


def end_of_array(error: Exception) -> int | None:
    """Return where an array ended that something follows, from the error about what follows it."""
    trailing = _TRAILING.search(str(error))
    return int(trailing[1]) - 1 if trailing else None


def place(error: Exception) -> int | None:
    """Return the byte at which a decoder's error is, None where it doesn't say."""
    found = _PLACE.search(str(error))
    return int(found[1]) if found else None


def is_cut(error: Exception, length: int) -> bool:
    """Return whether a text of `length` bytes is wrong only in that it ends (or is closed) too early."""
    at = place(error)
    return _TRUNCATED in str(error) if at is None else at >= length - 1
