"""The other process of `ullage audit counter`: it loads somebody's function, and calls it for each case that stdin brings.

One JSON object a line. What the function prints goes nowhere; only answers leave by the first stdout.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import operator
import os
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

ADAPTERS = {"verl": "ullage.audit.counter_adapters:verl", "hf": "ullage.audit.counter_adapters:hf"}
_PACKAGES = {"verl": "verl", "hf": "transformers"}
_EXTRAS = {"images_seqlens": "patches", "prompt_seqlens": "prompts"}


class Fields(dict[str, Any]):
    """A configuration that is read as a mapping and by attributes; a field that is missing is an AttributeError, as in transformers."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the configuration has no '{name}'") from None


def fields(config: Any) -> Any:
    """Return a configuration as `Fields`, its sections too."""
    if isinstance(config, Mapping):
        return Fields({name: fields(value) for name, value in config.items()})
    return config


def loaded(target: str) -> Callable[..., Any]:
    """Return the function called `module:function`, from the working folder or what is installed."""
    module, _, name = ADAPTERS.get(target, target).partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} is no function")
    function: Callable[..., Any] = found
    return function


def answer(function: Callable[..., Any], case: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"flops": number} or {"failed": why} for one case."""
    try:
        extras = {word: case[ours] for word, ours in _EXTRAS.items() if case[ours] and word in _parameters(function)}
        return {"flops": number(function(fields(case["config"]), list(case["seqlens"]), **extras))}
    except Exception as error:  # foreign code may raise anything; the report says what
        return {"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]}


_LARGEST_BITS = 200  # 10^60: far above any step, and still a float


def number(value: Any) -> float | int:
    """Return what a counter answered as a number; raises ValueError for what is none."""
    if value is None or isinstance(value, bool | str):
        raise ValueError(f"returned {value!r}")
    try:
        whole = operator.index(value)
    except TypeError:
        made = float(value)
    else:
        if whole.bit_length() > _LARGEST_BITS:
            raise ValueError(f"returned an integer of {whole.bit_length():,} bits")
        return whole
    if not math.isfinite(made):
        raise ValueError(f"returned {made}")
    return made


def _parameters(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def _version(target: str) -> str | None:
    package = _PACKAGES.get(target, target.partition(":")[0].partition(".")[0])
    try:
        return f"{package} {metadata.version(package)}"
    except (metadata.PackageNotFoundError, ValueError):
        return None


def serve(target: str, questions: TextIO, answers: TextIO) -> None:
    """Answer each line of `questions`; the first answer says whether the function was found."""

    def say(what: dict[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    sys.path.insert(0, str(Path.cwd()))
    try:
        function = loaded(target)
    except BaseException as error:  # a module may even exit while it is imported
        say({"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]})
        return
    say({"ready": _version(target)})
    for line in questions:
        say(answer(function, json.loads(line)))


if __name__ == "__main__":
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    serve(sys.argv[1], sys.stdin, private)
