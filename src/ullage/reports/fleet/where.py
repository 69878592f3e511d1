"""Which part of a fleet is asked about: a small language of conditions on who and where, such as `user=ann and model=H100`.

    condition  = all, or "or" between several
    all        = one, or "and" between several
    one        = FIELD = VALUE | FIELD != VALUE | "not" one | ( condition )

A value is a word, or anything in quotes; `*` in a word stands for any characters, and '' for no name. Of what several jobs share any
of the names counts; a team is that of the user, else of the namespace. A condition is asked of rows of sums and of samples alike.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError, did_you_mean, harmless
from ullage.gpus.chip import find
from ullage.job_names import plain_name, separate_names

FILTER_FIELDS = ("job", "user", "model", "host", "cluster", "gpu", "namespace", "mig")  # columns of samples
TEAM = "team"  # which a file of prices tells by user and namespace
LONGEST, DEEPEST = 4000, 40  # characters of a condition, and parentheses in one another
SYNTAX = "write --where 'user=ann and (model=H100 or host=\"node-1*\")'; fields are " + ", ".join((*FILTER_FIELDS, TEAM))

Mask = npt.NDArray[np.bool_]
_TOKEN = re.compile(r"\s*(?:(?P<sign>!=|=|\(|\))|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<word>[^\s()=!'\"]+))")


@dataclass(frozen=True)
class FieldTest:
    """One comparison: whether a field has a value (`equal`) or has not."""

    field: str
    value: str
    glob: bool = False
    equal: bool = True

    def fits(self, name: str | None) -> bool:
        """Return whether the comparison holds for what a row says of the field; None: it says nothing."""
        return _same(self, name) == self.equal

    def __str__(self) -> str:
        token = _TOKEN.fullmatch(self.value)
        plain = token and token["word"] == self.value and self.value not in ("and", "or", "not") and self.glob == ("*" in self.value)
        quote = '"' if "'" in self.value else "'"
        return f"{self.field}{'=' if self.equal else '!='}{self.value if plain else f'{quote}{self.value}{quote}'}"


@dataclass(frozen=True)
class NameTest:
    """Whether a column has one of some names; None: it says nothing."""

    field: str
    names: frozenset[str | None]

    def fits(self, name: str | None) -> bool:
        """Return whether what a row says of the field is one of the names."""
        return name in self.names


@dataclass(frozen=True)
class FleetFilter:
    """Conditions put together: `sort` is "and", "or" or "not"."""

    sort: str
    parts: tuple[FleetFilter | FieldTest | NameTest, ...]

    def __str__(self) -> str:
        words = [f"({part})" if isinstance(part, FleetFilter) and len(self.parts) > 1 else str(part) for part in self.parts]
        return f"not ({words[0]})" if self.sort == "not" else f" {self.sort} ".join(words)


Condition = FleetFilter | FieldTest | NameTest
TeamOf = Callable[[str | None, str | None], str | None]  # of a user and a namespace


def fleet_filter(
    where: str | None = None, *, job: Iterable[str] = (), user: Iterable[str] = (), host: Iterable[str] = ()
) -> Condition | None:
    """Return the condition of a question: that of its text, and of the jobs, users and hosts it names, any of each; None: all of a fleet.

    >>> str(fleet_filter("model=H100", user=["ann", "bob"]))
    'model=H100 and (user=ann or user=bob)'
    """
    parts = [] if where is None else [condition_of(where)]
    for field, names in (("job", job), ("user", user), ("host", host)):
        tests = tuple(FieldTest(field, name) for name in names)
        if tests:
            parts.append(tests[0] if len(tests) == 1 else FleetFilter("or", tests))
    return parts[0] if len(parts) == 1 else FleetFilter("and", tuple(parts)) if parts else None


def names_team(condition: Condition | None) -> bool:
    """Return whether a condition asks for a team."""
    if isinstance(condition, FleetFilter):
        return any(names_team(part) for part in condition.parts)
    return condition is not None and condition.field == TEAM


def without_teams(condition: Condition, users: Iterable[str | None], namespaces: Iterable[str | None], team_of: TeamOf) -> Condition:
    """Return a condition that names users and namespaces in place of teams; `users` and `namespaces` are all that there are."""
    if isinstance(condition, FleetFilter):
        return replace(condition, parts=tuple(without_teams(part, users, namespaces, team_of) for part in condition.parts))
    if condition.field != TEAM:
        return condition
    teams = {user: team_of(user, None) for user in users}
    own = NameTest("user", frozenset(user for user, team in teams.items() if team is not None and condition.fits(team)))
    others = NameTest("user", frozenset(user for user, team in teams.items() if team is None))
    theirs = NameTest("namespace", frozenset(name for name in namespaces if condition.fits(team_of(None, name))))
    return FleetFilter("or", (own, FleetFilter("and", (others, theirs))))


def rows_that_fit(condition: Condition, rows: pa.Table) -> Mask:
    """Return which rows of a table of sums fit a condition; each name is looked at once."""

    def test(one: FieldTest | NameTest) -> Mask:
        column = rows[one.field].cast(pa.string()).combine_chunks()
        found = pc.dictionary_encode(column, null_encoding="encode")
        found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        fitting = np.array([one.fits(name) for name in found.dictionary.to_pylist()], dtype=np.bool_)
        chosen: Mask = fitting[found.indices.to_numpy(zero_copy_only=False)] if len(fitting) else np.zeros(len(rows), np.bool_)
        return chosen

    result: Mask = _evaluated(condition, test, np.logical_and, np.logical_or, np.logical_not)
    return result


def samples_that_fit(condition: Condition, samples: Any, names: Mapping[str, Iterable[str | None]]) -> Any:
    """Return the samples (an Ibis table) that fit a condition; `names` has all values of each field."""

    def test(one: FieldTest | NameTest) -> Any:
        fitting = sorted({name for name in names[one.field] if name is not None and one.fits(name)})
        column = samples[one.field]
        found = column.isin(fitting).fill_null(False) if fitting else column.isnull() & column.notnull()
        return found | column.isnull() if one.fits(None) else found

    return samples.filter(_evaluated(condition, test, lambda a, b: a & b, lambda a, b: a | b, lambda a: ~a))


def _evaluated(
    condition: Condition,
    test: Callable[[FieldTest | NameTest], Any],
    both: Callable[[Any, Any], Any],
    either: Callable[[Any, Any], Any],
    other: Callable[[Any], Any],
) -> Any:
    if not isinstance(condition, FleetFilter):
        return test(condition)
    first, *rest = (_evaluated(part, test, both, either, other) for part in condition.parts)
    if condition.sort == "not":
        return other(first)
    for part in rest:
        first = both(first, part) if condition.sort == "and" else either(first, part)
    return first


def _same(test: FieldTest, name: str | None) -> bool:
    if name is None or not test.value:
        return name is None and not test.value
    if test.field == "model":
        return _matches(test, name) or _same_chip(test.value, name)
    several = test.field in ("job", "user", "namespace")
    return any(_matches(test, one) for one in ([plain_name(part) for part in separate_names(name)] if several else [name]))


def _matches(test: FieldTest, name: str) -> bool:
    if test.field == "model":
        return fnmatch.fnmatchcase(name.casefold(), test.value.casefold()) if test.glob else name.casefold() == test.value.casefold()
    return fnmatch.fnmatchcase(name, re.sub(r"\[", "[[]", test.value).replace("?", "[?]")) if test.glob else name == test.value


def _same_chip(value: str, name: str) -> bool:
    """Return whether a driver's name has a word that was asked for ("H100"), or both are names of one GPU."""
    if value.casefold() in re.split(r"[\s-]+", name.casefold()):
        return True
    try:
        return find(value) == find(name)
    except UllageError:
        return False


# --- parsing ---


@dataclass
class _Tokens:
    """The words of a condition with their places, and how far they are read."""

    text: str
    words: list[tuple[str, str, int]]  # what sort, the word, where it begins
    at: int = 0
    depth: int = 0

    def next_is(self, *words: str) -> bool:
        return self.at < len(self.words) and self.words[self.at][0] in ("sign", "word") and self.words[self.at][1].lower() in words

    def take(self) -> tuple[str, str, int]:
        found = self.words[self.at] if self.at < len(self.words) else ("end", "", len(self.text))
        self.at += 1
        return found

    def error(self, problem: str, at: int) -> UllageError:
        shown = f"{harmless(self.text[max(0, at - 40) : at], 100)}▸{harmless(self.text[at : at + 40], 100)}"
        return UllageError(f"--where {problem}, at character {at + 1}: {shown}", SYNTAX)


def condition_of(text: str) -> Condition:
    """Return the condition that a text says. Raises UllageError that names the place of what can't be read.

    >>> str(condition_of("user=ann and (model=H100 or not host='node 7')"))
    "user=ann and (model=H100 or (not (host='node 7')))"
    """
    tokens = _Tokens(text, [])
    if len(text) > LONGEST:
        raise UllageError(f"--where is {len(text):,} characters long", f"{LONGEST:,} are the most")
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise tokens.error("has a quote that does not end" if text[at] in "'\"" else "has a sign that it can't read", at)
        sort = str(found.lastgroup)
        tokens.words.append((sort, found[sort], found.start(sort) - (sort in ("single", "double"))))
        at = found.end()
    condition = _any_of(tokens)
    if tokens.at < len(tokens.words):
        _, word, place = tokens.words[tokens.at]
        raise tokens.error(f"has '{harmless(word, 40)}' where 'and', 'or' or the end should be", place)
    return condition


def _any_of(tokens: _Tokens) -> Condition:
    return _joined(tokens, "or", lambda: _joined(tokens, "and", lambda: _one(tokens)))


def _joined(tokens: _Tokens, sort: str, part: Callable[[], Condition]) -> Condition:
    parts = [part()]
    while tokens.next_is(sort):
        tokens.take()
        parts.append(part())
    return parts[0] if len(parts) == 1 else FleetFilter(sort, tuple(parts))


def _one(tokens: _Tokens) -> Condition:
    sort, word, place = tokens.take()
    if (sort == "word" and word.lower() == "not") or (word == "(" and sort == "sign"):
        tokens.depth += 1
        if tokens.depth > DEEPEST:
            raise tokens.error(f"has more than {DEEPEST} conditions in one another", place)
        found = FleetFilter("not", (_one(tokens),)) if word != "(" else _closed(tokens, place)
        tokens.depth -= 1
        return found
    if sort != "word":
        raise tokens.error("ends where a field should be" if sort == "end" else "has no field where one should be", place)
    if word not in (*FILTER_FIELDS, TEAM):
        error = tokens.error(f"has no field '{harmless(word, 40)}'", place)
        raise UllageError(error.problem, did_you_mean(word, (*FILTER_FIELDS, TEAM), "ullage fleet --help"))
    return _compared(tokens, word)


def _closed(tokens: _Tokens, place: int) -> Condition:
    found = _any_of(tokens)
    _, word, _ = tokens.take()
    if word != ")":
        raise tokens.error("has a '(' without its ')'", place)
    return found


def _compared(tokens: _Tokens, field: str) -> FieldTest:
    sort, word, place = tokens.take()
    if sort != "sign" or word not in ("=", "!="):
        raise tokens.error(f"has no = or != after '{field}'", place)
    kind, value, place = tokens.take()
    if kind in ("sign", "end"):
        raise tokens.error(f"has no value after '{field}{word}'", place)
    return FieldTest(field, value, glob=kind == "word" and "*" in value, equal=word == "=")
