"""Asks a question in every form that it has, and keeps what came as one text."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tests.command_line import Said, ask
from tests.documents import breaches
from tests.golden.canonical import differences_of_json, differences_of_words, lines_of_json, lines_of_page, lines_of_text
from ullage import __version__
from ullage.cli import cli

KEPT = Path(__file__).parent / "kept"
_HEAD = re.compile(r"^=== (.+)$", re.MULTILINE)
Answer = dict[str, list[str]]  # the lines of each form


def options_of(words: str) -> set[str]:
    """Return the options that the command of some words has."""
    command: click.Command = cli
    for word in words.split():
        known = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        if known is None:
            break
        command = known
    return {name for option in command.params for name in option.opts}


def answer(words: str, world: Path, *, text_alone: bool = False) -> Answer:
    """Ask in a world: as text, as JSON and as a page, as far as the command has them."""
    options = set() if text_alone else options_of(words)
    with within(world):
        said = ask(*words.split())
        given = {"text": [f"exit {said.code}", *_words(said)]}
        if "--json" in options and said.code != 2:
            given["json"] = _json(ask(*words.split(), "--json"))
        # without --only, --out is for something else than the answer
        if "--only" in options and "--once" not in words and said.code in (0, 3):
            given |= _page(words)
    return given


def _words(said: Said) -> list[str]:
    return [*lines_of_text(said.out), *(f"stderr: {line}" for line in lines_of_text(said.err))]


def _json(said: Said) -> list[str]:
    if not said.out.strip():
        return []
    try:
        return lines_of_json(_of_any_version(json.loads(said.out)))
    except ValueError:  # a line a record
        return lines_of_json([_of_any_version(json.loads(line)) for line in said.out.splitlines()])


def _of_any_version(found: dict[str, Any]) -> dict[str, Any]:
    """Return a document, which follows its schema, without the version of Ullage that it names: a release changes no answer."""
    assert found["version"] == __version__ and breaches(found) == []
    return found | {"version": "of Ullage"}


def _page(words: str) -> Answer:
    path = Path("page.html")  # pages hold the command that made them: the same name everywhere
    said = ask(*words.split(), "--out", path)
    if said.code not in (0, 3) or not path.is_file():
        return {}
    lines = lines_of_page(path.read_text())
    path.unlink()
    return {"page": lines}


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Work in a folder, with a terminal of 120 columns."""
    before, columns = Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = "120"
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)


def keep(name: str, given: Answer) -> None:
    """Write an answer to where answers are kept."""
    KEPT.mkdir(exist_ok=True)
    parts = [f"=== {form}\n" + "".join(line + "\n" for line in lines) for form, lines in given.items()]
    (KEPT / f"{name}.txt").write_text("".join(parts), encoding="utf-8")


def kept(name: str) -> Answer:
    """Return the kept answer of a name."""
    _, *parts = _HEAD.split((KEPT / f"{name}.txt").read_text(encoding="utf-8"))
    return {form: lines.strip("\n").split("\n") if lines.strip("\n") else [] for form, lines in zip(parts[::2], parts[1::2], strict=True)}


def differences(before: Answer, after: Answer) -> dict[str, list[str]]:
    """Return by form what differs between two answers; forms that don't are left out."""
    found = {}
    for form in before | after:
        compare = differences_of_json if form == "json" else differences_of_words
        changed = compare(before.get(form, []), after.get(form, []))
        if changed:
            found[form] = changed
    return found
