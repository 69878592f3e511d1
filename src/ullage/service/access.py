"""Who may ask what: tokens, each with what it lets one do, and the part of the fleet that it lets one see.

A file has one token a line: what it lets one do, the token, and perhaps whose jobs it lets one see.

    act  6f0c…                                 (reads everything, and reports what jobs say of themselves)
    read 93aa…                                 (reads everything)
    read d71e… user=ann or namespace=vision    (reads those jobs alone)
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers

from ullage.errors import UllageError, harmless
from ullage.reports.fleet.where import Condition, FieldTest, FleetFilter, condition_of
from ullage.service.served import OF_FLEET, AskedQuestion

THIS_MACHINE = ("localhost", "127.0.0.1", "::1")  # names and addresses that only programs on it reach
ROLE = "ullage.role"  # where a request's scope has what it may do
SHORTEST = 16  # characters of a token in a file: a shorter one can be guessed
OWN = ("user", "namespace")  # what says whose a job is
FOR_PARTS = (*OF_FLEET, "job", "gpus", "metrics")  # questions that one may ask who sees a part; others are of the whole


@dataclass(frozen=True)
class GivenRole:
    """What a request may do: `acts` is whether it may change something, `part` which jobs it may see (None: all)."""

    acts: bool = False
    part: Condition | None = None

    def may_ask(self, name: str) -> bool:
        """Return whether a question of this name may be asked."""
        return self.part is None or name in FOR_PARTS

    def within_part(self, request: AskedQuestion) -> AskedQuestion:
        """Return the request as it may be asked: of a fleet, for the jobs that may be seen."""
        if self.part is None or request.name not in OF_FLEET:
            return request
        own = dict(request.words).get("where")
        where = f"({own}) and ({self.part})" if own else str(self.part)
        return AskedQuestion(request.name, tuple(sorted({**dict(request.words), "where": where}.items())), request.up_to_last_sample)

    def sees_job(self, document: Mapping[str, Any]) -> bool:
        """Return whether a job may be seen, whose report's document says whose it is."""
        return self.part is None or any(test.fits(document.get(test.field)) for test in _tests(self.part) if document.get(test.field))


@dataclass(frozen=True)
class Access:
    """Who may ask: whoever has the `token`, which lets one act, or one of the `roles`' tokens; without any everybody who reaches the port.

    `hosts` are the names of this service by which one may ask it without a token.
    """

    token: str = ""
    hosts: tuple[str, ...] = THIS_MACHINE
    roles: tuple[tuple[str, GivenRole], ...] = ()

    @property
    def everybody(self) -> bool:
        """Whether everybody who reaches the port may ask: it has no tokens."""
        return not (self.token or self.roles)

    def role_of(self, headers: Headers) -> GivenRole | None:
        """Return what a request may do, None where nothing: by its bearer token, or the password of a browser's dialog."""
        tokens = (*((self.token, GivenRole(acts=True)) for _ in (self.token,) if self.token), *self.roles)
        if not tokens:
            return GivenRole()
        kind, _, said = headers.get("authorization", "").partition(" ")
        given = said.strip() if kind.lower() == "bearer" else _password(said) if kind.lower() == "basic" else ""
        found = [role for token, role in tokens if hmac.compare_digest(given.encode(), token.encode())]  # all, in the same time
        return found[0] if found else None

    def names(self, host: str) -> bool:
        """Return whether a request is for this service by name: a page of another site can't ask it by a name of its own."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        return bool(self.token or self.roles) or name.strip("[]").lower() in self.hosts


def _password(said: str) -> str:
    try:
        return base64.b64decode(said, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


def read_roles(text: str, place: str) -> tuple[tuple[str, GivenRole], ...]:
    """Return the tokens of a file and what each lets one do. Raises UllageError that names the line, and never a token."""
    found = dict[str, GivenRole]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            token, role = _role(line)
            if token in found:
                raise UllageError("this token stands there twice", "give each role a token of its own")
        except UllageError as error:
            raise UllageError(f"{harmless(place)} line {number}: {error.problem}", error.hint) from None
        found[token] = role
    if not found:
        raise UllageError(f"the file '{harmless(place)}' holds no token", "a line has a role and a token: read 93aa…")
    return tuple(found.items())


def _role(line: str) -> tuple[str, GivenRole]:
    word, token, part = [*line.split(None, 2), "", "", ""][:3]
    if word not in ("read", "act"):
        raise UllageError("a line begins with read or act", "then comes the token, and perhaps user=NAME")
    if len(token) < SHORTEST:
        raise UllageError(f"a token has at least {SHORTEST} characters", "openssl rand -hex 32 makes one")
    if part and word == "act":
        raise UllageError("who may act acts for the whole fleet", "leave out the part, or write read")
    return token, GivenRole(acts=word == "act", part=_part(part.strip()) if part.strip() else None)


def _part(text: str) -> Condition:
    condition = condition_of(text)
    if not _is_own(condition):
        raise UllageError("a part is some users and namespaces", "write user=ann or namespace=vision")
    return condition


def _is_own(condition: Condition) -> bool:
    if isinstance(condition, FleetFilter):
        return condition.sort == "or" and all(map(_is_own, condition.parts))
    return isinstance(condition, FieldTest) and condition.equal and condition.field in OWN and bool(condition.value)


def _tests(condition: Condition) -> Iterable[FieldTest]:
    if isinstance(condition, FleetFilter):
        return [test for part in condition.parts for test in _tests(part)]
    return [condition] if isinstance(condition, FieldTest) else []
