"""The one error that a user sees: what is wrong, where, and what to do next."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class UllageError(Exception):
    """Something that the user can fix.

    `problem` is one sentence that names the value and the place; `hint` says what to do next.

    >>> print(UllageError("no GPU is called 'H1000'", "`ullage gpus` lists all"))
    no GPU is called 'H1000'
      `ullage gpus` lists all
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem}\n  {self.hint}" if self.hint else self.problem


class UnreadableError(UllageError):
    """A place that can't be read, or not to its end: damaged, cut off, forbidden, or a server that stopped answering.

    `read_until` is the time (ms since 1970) up to which everything was read; None where nobody can tell.
    """

    def __init__(self, problem: str, hint: str = "", read_until: int | None = None) -> None:
        super().__init__(problem, hint)
        self.read_until = read_until


class NoSampleError(UllageError):
    """There is no sample in the window that was asked about; nothing was wrong with reading it."""


class NoSuchNameError(UllageError):
    """A name that nothing has of what was read: a job of which no sample is."""


def missing_extra(library: str, extra: str, purpose: str) -> UllageError:
    """Return the error for an optional library that is not installed.

    >>> print(missing_extra("nvidia-ml-py", "gpu", "reading this machine's GPUs"))
    reading this machine's GPUs needs the library 'nvidia-ml-py', which is not installed
      pip install 'ullage[gpu]'
    """
    return UllageError(f"{purpose} needs the library '{library}', which is not installed", f"pip install 'ullage[{extra}]'")


def did_you_mean(word: str, known: Iterable[str], command: str) -> str:
    """Return a hint with the nearest known words, and the command that lists all of them.

    >>> did_you_mean("sm_activ", ["sm_active", "power"], "ullage metrics")
    "did you mean 'sm_active'? `ullage metrics` lists all"
    """
    folded = {k.casefold(): k for k in known}
    near = difflib.get_close_matches(word.casefold(), folded, n=3, cutoff=0.6)
    if not near:
        return f"`{command}` lists all"
    words = [f"'{folded[n]}'" for n in near]
    listed = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return f"did you mean {listed}? `{command}` lists all"


def public(place: str) -> str:
    """Return the name of a place without what may be secret in a URL: user, password, query, and parameters as Spark Connect has them.

    >>> public("https://me:p@ss@prometheus.example/api?token=7"), public("scrapes/a?.prom")
    ('https://…@prometheus.example/api?…', 'scrapes/a?.prom')
    >>> public("sc://spark:15002/;token=7;user_id=ann"), public("http://me:p;a?ss@host/"), public("a;b.prom")
    ('sc://spark:15002/;…', 'http://…', 'a;b.prom')
    """
    scheme, mark, rest = place.partition("://")
    if not mark:
        return place
    user, at, _ = re.split("[/#]", rest, maxsplit=1)[0].rpartition("@")
    if set("?;") & set(user):  # a password with such a sign, or an address in a query: nobody can tell
        return scheme + mark + "…"
    shown, *hidden = re.split("([?;])", rest.removeprefix(user + at), maxsplit=1)
    return scheme + mark + ("…@" if at else "") + shown + (f"{hidden[0]}…" if hidden else "")


def harmless(text: str, limit: int = 200) -> str:
    """Return foreign text (a label, a job name) fit for one line of a terminal or a report.

    Control characters, terminal escapes and direction overrides become visible escapes; what is longer than
    `limit` characters is cut. HTML and JSON writers still escape by their own rules.

    >>> harmless("job\\x1b[31m\\nred")
    'job\\\\x1b[31m\\\\nred'
    """
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)
