"""Values as people write them: paths, spans of time, moments, prices, ratios."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from pathlib import Path

from ullage.errors import UllageError, harmless

_SPAN = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)$")
_PRICES = "write --price 2.50, or --price H100=2.50,A100=1.20"
_LONGEST = 1e11  # seconds; some 3,000 years
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def expanded_path(text: str | Path) -> Path:
    """Return a path whose ~ is the home of a user; as it is written where that user or the home is not known, as a shell has it.

    >>> expanded_path("~nobody-is-called-so/train.log")
    PosixPath('~nobody-is-called-so/train.log')
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def seconds(text: str) -> float:
    """Return a span such as 90s, 15m, 24h, 7d in seconds.

    >>> seconds("24h"), seconds("90")
    (86400.0, 90.0)
    """
    found = _SPAN.match(text.strip().lower())
    try:
        value = float(found[1]) * _SECONDS[found[2]] if found else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _LONGEST:
        raise UllageError(f"'{harmless(text, 80)}' is not a span of time", "write 90s, 15m, 24h or 7d")
    return value


def moment(text: str | None, now: float) -> int | None:
    """Return a time in ms since 1970: ISO 8601 (UTC where no zone is given), seconds since 1970, or a span before now.

    >>> moment("2026-08-10T12:00:00Z", now=0), moment("1h", now=7200), moment(None, now=0)
    (1786363200000, 3600000, None)
    """
    if text is None:
        return None
    if _SPAN.match(text.strip().lower()):
        return round((now - seconds(text)) * 1000)
    if re.fullmatch(r"\d{9,10}(\.\d+)?", text.strip()):
        return round(float(text) * 1000)
    try:
        when = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise UllageError(
            f"'{harmless(text, 80)}' is not a time",
            "write 2026-08-10, 2026-08-10T12:00:00Z, seconds since 1970, or a span before now such as 24h",
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return round(when.timestamp() * 1000)


def prices(texts: Sequence[str]) -> dict[str, float]:
    """Return prices per GPU-hour by GPU name; "" is for every other GPU.

    >>> prices(("2.5", "A100=1.2"))
    {'': 2.5, 'A100': 1.2}
    """
    found: dict[str, float] = {}
    for text in texts:
        for part in text.split(","):
            name, _, amount = part.rpartition("=")
            try:
                found[name.strip()] = float(amount)
            except ValueError:
                raise UllageError(f"'{harmless(part, 80)}' is not a price", _PRICES) from None
            if not 0 <= found[name.strip()] < math.inf:
                raise UllageError(f"a price must be 0 or more, not '{harmless(part, 80)}'", _PRICES)
    return found


def share(text: str, option: str) -> float:
    """Return a ratio: "54.27%" and "54.27" are percent, "0.5427" is one already.

    Raises UllageError for no number, and for one that people mean as percent and as a ratio alike.

    >>> share("34", "--ofu"), share("0.5", "--ofu"), share("1", "--tile-efficiency"), share("1.5%", "--mfu")
    (0.34, 0.5, 1.0, 0.015)
    """
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        problem = f"{option} '{harmless(text, 40)}' is not a number"
        raise UllageError(problem, "give percent such as 54.27, or a ratio such as 0.5427") from None
    if text.strip().endswith("%") or value >= 2:
        return value / 100
    least = 1.0 if option in ("--ofu", "--mfu", "--reported") else 1.0 + 1e-12  # an efficiency of 1 is one; nobody's OFU or MFU is
    if value >= least:
        said = harmless(text.strip(), 40)
        raise UllageError(f"{option} {said} may be {said} % or a ratio of {said}", f"write {said}%, or a ratio such as {value / 100:g}")
    return value
