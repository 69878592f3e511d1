"""What completes a word on the command line: the names that an option's values can have, and files."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from ullage.askable import Askable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PLACE = re.compile(r"FILE|FOLDER|SOURCE|PLACE|CONFIG|LOG|RUN…|DIR|PATH|\]A$|\]B$")  # of a metavar whose values are files


Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def completer(field: Askable) -> Completer | None:
    """Return what completes the values of a field: names that it knows, files where it takes some; None where click knows itself."""
    takes_files = bool(_PLACE.search(field.metavar or ""))
    if field.suggested:
        return complete_from(field.suggested, or_files=takes_files)
    return complete_files if takes_files else None


def complete_from(named: str, *, or_files: bool = False) -> Completer:
    """Return what completes a word with the `suggestions` of MODULE:NAME; where none begins so, with files if it may be one."""

    def complete(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
        found = matching(suggestions(named), begun)
        return found or (complete_files(ctx, param, begun) if or_files else [])

    return complete


def suggestions(named: str) -> Iterable[str]:
    """Return the names that MODULE:NAME is, or gives when it is called."""
    module, _, name = named.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    names: Iterable[str] = found() if callable(found) else found
    return names


def matching(names: Iterable[str], begun: str) -> list[CompletionItem]:
    """Return the names that begin as a word does, in whatever case."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.casefold().startswith(begun.casefold())]


def complete_files(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Have the shell complete the names of files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]


def complete_answer_file(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the file that an answer is written to: `report.` with the forms that every report has."""
    from ullage.views.files import FORMS

    stem, dot, _ = begun.rpartition(".")
    forms = matching((f"{stem}{form}" for form in FORMS), begun) if dot and stem else []
    return forms or complete_files(ctx, param, begun)
