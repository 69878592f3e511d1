"""The settings of the service: one file in TOML, whose mistakes are named by line; what the command line says goes before it.

Secrets never stand in it: a token and HTTP headers come from the environment or from files of their own.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ullage.askable import read_headers
from ullage.errors import UllageError, did_you_mean, harmless
from ullage.service.served import ReadPlace, request_of
from ullage.written_values import seconds

TOKEN, HEADER = "ULLAGE_SERVE_TOKEN", "ULLAGE_SERVE_HEADER"  # variables of the environment
_SPANS = ("every", "first", "timeout", "answer_limit")
SHORTEST = 0.1  # s; below, a sampler's readings are not valid


class ServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the service is told: what it reads, where it listens, how it answers. Spans are written as 90s, 15m, 24h."""

    source: str | list[str] = ""
    store: str = ""
    jobs: list[str] = msgspec.field(default_factory=list)
    every: str = "60s"
    first: str = "24h"
    keep_days: Annotated[int, msgspec.Meta(ge=0)] = 0
    cluster: str = ""
    time_zone: str = ""
    timeout: str = "30s"
    ca: str = ""
    header_file: str = ""
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 9748
    hosts: list[str] = msgspec.field(default_factory=list)
    token_file: str = ""
    answer_limit: str = "60s"
    log: Literal["text", "json"] = "text"
    defaults: dict[str, str | int | float | bool | list[str]] = msgspec.field(default_factory=dict)

    @property
    def sources(self) -> tuple[str, ...]:
        """What is read; nothing: this machine, or a simulated fleet."""
        return tuple([self.source] if isinstance(self.source, str) else self.source) if self.source else ()

    def words(self) -> dict[str, Any]:
        """Return the words that every question has unless a request says others."""
        return dict(request_of("fleet", _pairs(self.defaults)).words)

    def token(self) -> str:
        """Return the token, "" for none. Raises UllageError for a file that can't be read or is empty."""
        found = os.environ.get(TOKEN, "").strip()
        return found or (_secret(self.token_file) if self.token_file else "")

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers for the source: 'NAME: VALUE', a line each."""
        said = os.environ.get(HEADER, "") or (_secret(self.header_file) if self.header_file else "")
        return read_headers(tuple(line for line in said.splitlines() if line.strip()), "--header", 0.0)


def _pairs(words: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(one)) for name, value in words.items() for one in (value if isinstance(value, list) else [value])]


def _secret(place: str) -> str:
    try:
        found = Path(place).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UllageError(
            f"the file '{harmless(place)}' with a secret can't be read: {error}", "make it readable for this user alone"
        ) from None
    if not found:
        raise UllageError(f"the file '{harmless(place)}' holds no secret", "put one into it, in a line")
    return found


def read_settings(file: str | Path) -> ServiceSettings:
    """Return the settings of a file. Raises UllageError that names the line of the first mistake."""
    path = Path(file).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UllageError(f"the settings '{harmless(str(file))}' can't be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UllageError(f"{_at(path, _line(str(error), text))}: {harmless(_without_line(str(error)))}", "TOML: toml.io") from None
    settings = _typed(said, text, path)
    try:
        return checked(settings)
    except _SettingError as error:
        raise UllageError(f"{_at(path, line_of(text, error.name))}: {error.problem}", error.hint) from None


def _typed(said: dict[str, Any], text: str, path: Path) -> ServiceSettings:
    for name in said:
        if name not in ServiceSettings.__struct_fields__:
            hint = did_you_mean(name, ServiceSettings.__struct_fields__, "docs/serve.md")
            raise UllageError(f"{_at(path, line_of(text, name))}: there is no setting '{harmless(name, 60)}'", hint)
    try:
        return msgspec.convert(said, ServiceSettings)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$.")
        name = re.split(r"[.\[`]", where)[0]
        raise UllageError(
            f"{_at(path, line_of(text, name))}: {name}: {harmless(problem[:1].lower() + problem[1:])}", "docs/serve.md lists all"
        ) from None


class _SettingError(UllageError):
    """A value that a setting can't have."""

    def __init__(self, name: str, error: UllageError) -> None:
        super().__init__(f"{name}: {error.problem}", error.hint)
        self.name = name


def checked(settings: ServiceSettings) -> ServiceSettings:
    """Return settings whose every value can be read as it will be. Raises UllageError for the first that can't."""
    for name in _SPANS:
        with _naming(name):
            if seconds(getattr(settings, name)) < SHORTEST:
                raise UllageError(f"'{harmless(getattr(settings, name))}' is too short", f"{SHORTEST:g} s is the least")
    for word, value in settings.defaults.items():
        with _naming(word):
            request_of("fleet", _pairs({word: value})).asked(ReadPlace(), 0)
    return settings


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except UllageError as error:
        raise _SettingError(name, error) from None


def line_of(text: str, name: str) -> int | None:
    """Return the line in which a setting is given; None where it is not found.

    >>> line_of('port = 1\\n[defaults]\\n"by" = "user"', "by")
    3
    """
    wanted = re.compile(rf"""\s*\[?\s*["']?{re.escape(name)}["']?\s*[\].=]""") if name else None
    return next((number for number, line in enumerate(text.splitlines(), 1) if wanted and wanted.match(line)), None)


def _at(path: Path, line: int | None) -> str:
    return f"{harmless(str(path))}{'' if line is None else f' line {line}'}"


def _line(message: str, text: str) -> int:
    """Return the line that a message of `tomllib` names: without a number it is the last."""
    found = re.search(r"at line (\d+)", message)
    return int(found[1]) if found else max(1, len(text.splitlines()))


def _without_line(message: str) -> str:
    return re.sub(r" \(at (line \d+, column \d+|end of document)\)", "", message)
