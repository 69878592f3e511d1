"""The command of the next report: where a report on a fleet or on a job leads, with what was said of how to read and what to assume."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ullage.asking import Askable, askable, read_moment
from ullage.errors import harmless, public
from ullage.job_names import separate_names

# Options that mean the same in `ullage fleet` and `ullage job`, and change what is read or assumed.
SHARED = (
    "engine", "jobs", "reported", "since", "until", "cluster", "time_zone", "gpu", "peak_tflops", "prices",
    "price_file", "currency", "kwh_price", "carbon",
)  # fmt: skip


def job_command(question: Any, job: str) -> str:
    """Return the command that reports on a job, of the telemetry that a question is about; "" for the work of several jobs at once."""
    if not named_alone(job):
        return ""
    return _command("job", [job, *question.sources], option_words(question, SHARED))


def waterfall_command(question: Any, job: str) -> str:
    """Return the command of the chain from peak to MFU of a job, to which its traces and its configuration can be added."""
    if not named_alone(job):
        return ""
    options = option_words(question, ("jobs", "since", "until", "cluster", "time_zone", "gpu", "peak_tflops"))
    return _command("waterfall", question.sources, [*_option("--job", job), *options])


def part_command(question: Any, field: str, name: str) -> str:
    """Return the command that reports on the jobs of a user or on a host, of the fleet that a question is about."""
    if not named_alone(name) or "/" in name:  # a name that stands in several clusters has its cluster before it
        return ""
    options = option_words(question, (*SHARED, "inventory", "gap"))
    return _command("fleet", question.sources, [*_option(f"--{field}", name), *options])


def named_alone(name: str) -> bool:
    """Return whether a name is that of one thing, and can be typed as it stands.

    >>> named_alone("4711"), named_alone("4711,4712"), named_alone("no job"), named_alone("a\\nb")
    (True, False, False, False)
    """
    return bool(name) and len(separate_names(name)) == 1 and not name.startswith("no ") and harmless(name) == name


def option_words(question: Any, names: Sequence[str]) -> Iterator[str]:
    """Yield the options of a question that have a value of their own, as a command line has them; what is secret is left out."""
    for field in askable(type(question)):
        value = getattr(question, field.name)
        if field.name in names and not field.secret and value not in (None, (), {}) and value != field.default:
            for text in _texts(field, value):
                yield from _option(field.flag, public(text))


def _texts(field: Askable, value: Any) -> Iterator[str]:
    from ullage.views.declared import iso

    if isinstance(value, Mapping):
        yield from (f"{name}={amount:g}" if name else f"{amount:g}" for name, amount in value.items())
    elif isinstance(value, tuple):
        yield from map(str, value)
    elif field.read is read_moment:
        yield iso(value)
    elif isinstance(value, float):  # a number, or a span in seconds
        yield f"{value:g}" if field.read is None else f"{value:g}s"
    else:
        yield str(value).partition(";")[0] if field.name == "engine" else str(value)  # behind it stands a token


def _option(flag: str, text: str) -> list[str]:
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _command(name: str, places: Sequence[str], options: Iterable[str]) -> str:
    """Return a command line; places that start with "-" would be taken for options, so they stand behind "--"."""
    words = [public(place) for place in places]
    taken = any(word.startswith("-") for word in words)
    return shlex.join(["ullage", name, *([*options, "--", *words] if taken else [*words, *options])])
