"""What others may rely on: the package's names, commands with their options, and what each registry holds."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

import ullage
from ullage.audit.mistakes.mistake import MISTAKES
from ullage.benches.bench import BENCHES
from ullage.cli import cli
from ullage.gpus.chip import CHIPS
from ullage.kernels.gemms.gemm import GRAMMARS
from ullage.kernels.sass.probe import PROBES
from ullage.metrics.metric import METRICS
from ullage.models.conventions.convention import CONVENTIONS
from ullage.models.model import MODELS
from ullage.registry import Registry
from ullage.sources.jobs.job import JOB_SOURCES
from ullage.sources.source import SOURCES
from ullage.traces.trace import TRACES
from ullage.trainlogs.log import TRAINLOGS
from ullage.trainlogs.points import TRACKERS

REGISTRIES: tuple[Registry[object], ...] = (
    BENCHES, CHIPS, CONVENTIONS, GRAMMARS, JOB_SOURCES, METRICS, MISTAKES, MODELS, PROBES, SOURCES, TRACES, TRACKERS, TRAINLOGS,
)  # type: ignore[assignment]  # fmt: skip


def surface() -> list[str]:
    """Return a line for each name, option, parameter and member, sorted within its sort."""
    return [*_names(), *_commands(cli, "ullage"), *_members()]


def _names() -> Iterator[str]:
    for name in sorted(ullage.__all__):
        member = getattr(ullage, name)
        yield f"ullage.{name}"
        if inspect.isfunction(member):
            yield from (f"ullage.{name}({parameter})" for parameter in inspect.signature(member).parameters)


def _commands(command: click.Command, words: str) -> Iterator[str]:
    yield words
    yield from sorted(f"{words} {name}" for option in command.params for name in [*option.opts, *option.secondary_opts])
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            part = command.get_command(context, name)
            if part is not None:
                yield from _commands(part, f"{words} {name}")


def _members() -> Iterator[str]:
    for registry in REGISTRIES:
        registry.load()
        yield from sorted(f"{registry.noun}: {name}" for name in registry)
