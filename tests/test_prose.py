"""Messages, help and pages in plain English: words and patterns that readers found unclear come no more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ullage.cli import cli

ROOT = Path(__file__).parents[1]
# A pattern, and what to write in its place.
UNCLEAR = {
    r"\bBegin of\b": "Start of",
    r"\bis no (rank|time|number|size|record|trace)\b(?! at all)": "is not a …, or: … must be …",
    r"\bare no (ranks?|times?|numbers?|records?|readings?|traces?|jobs?)\b": "are not …",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\bwhence\b": "from where",
    r"\butili[sz]e\b": "use",
    r"\bin order to\b": "to",
    r"\bplease\b": "leave it out",
    r"\bsimply\b|\bjust\b(?! (don|as|before|after))": "leave it out",
    r"\betc\.": "name what it is",
}
GENERATED = {"commands.md", "metrics.md", "fields.md", "gpus.md", "models.md", "sources.md", "gpu-checks.md", "benches.md"}
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])


def unclear(text: str) -> list[str]:
    """Return what of a text readers would stumble over, each with what to write in its place."""
    return [f"'{found[0]}': {better}" for pattern, better in UNCLEAR.items() for found in re.finditer(pattern, text)]


def test_a_pattern_is_found_and_its_better_is_not() -> None:
    assert unclear("Begin of the window") == ["'Begin of': Start of"]
    assert unclear("7 is no rank") == ["'is no rank': is not a …, or: … must be …"]
    assert unclear("Start of the window; rank must be a whole number, not 7; if there is no time at all") == []


def prose_of(page: Path) -> str:
    """Return a page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`|“[^”]*”", "", text)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=lambda page: page.name)
def test_a_page_is_plain(page: Path) -> None:
    assert unclear(prose_of(page)) == []


def commands(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    listed = getattr(command, "list_commands", None)
    for name in listed(click.Context(command)) if listed else []:
        part = command.get_command(click.Context(command), name)  # type: ignore[attr-defined]
        if part is not None and part is not command:
            yield from commands(part, f"{words} {name}")


def test_help_is_plain() -> None:
    faults = []
    for words, command in commands(cli, "ullage"):
        texts = [command.help or "", command.epilog or "", *(getattr(option, "help", "") or "" for option in command.params)]
        faults += [f"{words}: {fault}" for text in texts for fault in unclear(text)]
    assert faults == []


def messages(module: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of errors that a module raises and of notes that it leaves, with their lines."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and _name(node.func) in (
            "UllageError",
            "UnreadableError",
            "UsageError",
            "note",
            "drop",
            "repair",
            "cut",
        ):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield node.lineno, part.value


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def test_messages_are_plain() -> None:
    faults = []
    for module in sorted((ROOT / "src" / "ullage").rglob("*.py")):
        for line, text in messages(module):
            faults += [f"{module.relative_to(ROOT)}:{line}: {fault}" for fault in unclear(text)]
    assert faults == []
