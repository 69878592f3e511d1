"""Which commands there are, and what each is in a line, without loading any: help of the whole takes a tenth of a second so."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from types import CodeType

_QUESTIONS, _COMMANDS = "ullage.questions", "ullage.cli"


def question_names(group: str = "") -> list[str]:
    """Return the names of the questions that are commands, or those of a group's parts.

    They are the modules of `ullage.questions`, and its folders: a folder is a group of commands. Its member of the same name is what the
    group's command answers by itself.
    """
    package = importlib.import_module(question_module(group) if group else _QUESTIONS)
    modules = (found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_"))
    return sorted(name.replace("_", "-") for name in modules if name != group)


def command_names() -> set[str]:
    """Return the names of the commands that are modules of this folder."""
    path = importlib.import_module(_COMMANDS).__path__
    return {found.name for found in pkgutil.iter_modules(path) if not found.name.startswith("_")} - {"options"}


def is_group(name: str) -> bool:
    """Return whether questions lie in a folder of this name."""
    path = importlib.import_module(_QUESTIONS).__path__
    return any(found.ispkg and found.name == name for found in pkgutil.iter_modules(path))


def answers_itself(group: str) -> bool:
    """Return whether a group's command has an answer of its own, beside those of its parts."""
    return importlib.util.find_spec(f"{question_module(group)}.{group}") is not None


def question_module(name: str) -> str:
    """Return where a question lies.

    >>> question_module("fleet"), question_module("bench gemm-ofu")
    ('ullage.questions.fleet', 'ullage.questions.bench.gemm_ofu')
    """
    return ".".join([_QUESTIONS, *name.replace("-", "_").split(" ")])


def one_line_help(name: str) -> str:
    """Return what a command is: the first sentence of its module's docstring. The module is not run.

    >>> one_line_help("gpus"), one_line_help("demo")
    ('Which GPUs does Ullage know, with which peaks?', 'The main job on a simulated fleet whose answers are known.')
    """
    module = f"{_COMMANDS}.{name}" if name in command_names() else question_module(name)
    spec = importlib.util.find_spec(module)
    code_of = getattr(spec.loader, "get_code", None) if spec else None
    said = _docstring(code_of(module) if code_of else None).partition("\n")[0].removeprefix(f"`ullage {name}`: ")
    said = said.partition(". ")[0] + said.partition(". ")[1].strip()
    return said[:1].upper() + said[1:]


def _docstring(code: CodeType | None) -> str:
    """Return a module's docstring; it is the first constant of its code, unless Python runs without them (-OO)."""
    first = code.co_consts[0] if code is not None and code.co_consts else None
    return first if isinstance(first, str) and "__doc__" in (code.co_names if code else ()) else ""
