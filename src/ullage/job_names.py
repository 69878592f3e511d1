r"""How the names of several jobs (or users) stand in one word, whatever characters they hold.

A device that several jobs hold at once has one `job`: their names in alphabetical order with a comma between. A comma
that is part of a name has a backslash before it, and so has a backslash that would be taken for such a sign. Every other
name stands as it is, so that a word written before there was an escape means what it meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_AMBIGUOUS = re.compile(r"\\(?=[\\,]|$)")
_PART = re.compile(r"(?:\\[\\,]|[^,])+")
_ESCAPE = re.compile(r"\\([\\,])")


def escaped_name(name: str) -> str:
    r"""Return one name as it stands in a column of jobs or users.

    >>> print(escaped_name("ml/train,eval"), escaped_name(r"CORP\ann"))
    ml/train\,eval CORP\ann
    """
    return _AMBIGUOUS.sub(r"\\\\", name).replace(",", r"\,")


def joined_names(words: Iterable[str]) -> str:
    r"""Return one word for all the names in some words of a column, each name once, sorted.

    >>> print(joined_names(["b", "a,b", escaped_name("c,d")]))
    a,b,c\,d
    """
    return ",".join(sorted({name for word in words for name in separate_names(word)}))


def separate_names(word: str) -> list[str]:
    r"""Return the names in a word of a column, still escaped.

    >>> separate_names(r"a,b"), separate_names(r"c\,d")
    (['a', 'b'], ['c\\,d'])
    """
    return _PART.findall(word)


def plain_name(word: str) -> str:
    r"""Return one escaped name as its owner wrote it.

    >>> plain_name(escaped_name(r"a\,b")) == r"a\,b"
    True
    """
    return _ESCAPE.sub(r"\1", word)


def group_label(name: str | None, by: str) -> str:
    """Return what a report calls the group of a name; None is the group of what has no name.

    A name that reads like that group, or like a name in quotes, is put in quotes, so that no two groups look alike.

    >>> group_label(None, "job"), group_label("no job", "job"), group_label("'no job'", "job"), group_label("train", "job")
    ('no job', "'no job'", "''no job''", 'train')
    """
    nobody = f"no {by}"
    if name is None:
        return nobody
    return f"'{name}'" if name.strip("'") == nobody else name
