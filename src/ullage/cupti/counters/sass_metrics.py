"""Instructions that the kernels of an unmodified program executed, by CUPTI's SASS metrics: what the recorder counted of each kernel.

The recorder (`native/sass_metrics.c`) is told which metrics by `ULLAGE_SASS`. CUPTI counts by code that it adds to the kernels' own, so
that each kernel runs once, and longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ullage.cupti.chunks import Chunk, ChunkType, EarlyEnd, chunks
from ullage.cupti.counters.wanted import VECTOR
from ullage.cupti.results import recorded_problems
from ullage.errors import UllageError, harmless

VARIABLE = "ULLAGE_SASS"
INSTRUCTIONS = "smsp__sass_inst_executed"  # those of warps
METRICS = (INSTRUCTIONS, *(one.metrics[0].removesuffix(".sum").replace("sm__", "smsp__", 1) for one in VECTOR))
DOING = "counting instructions"  # the detail of a problem that is one of the recorder's calls of CUPTI
WORDS = {DOING: "not all instructions were counted", "counting every context": "not every context's instructions were counted"}
SINCE = "CUDA 12.5"  # SASS metrics


@dataclass
class ExecutedKernel:
    """A kernel by name, mangled: its launches, and what all of them executed, by metric."""

    launches: int = 0
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ExecutedInstructions:
    """What some recordings hold: kernels by name, the chips and the metrics that these lack, records that CUPTI dropped, and what went
    wrong, in words."""

    kernels: Mapping[str, ExecutedKernel]
    chips: tuple[str, ...]
    lacking: tuple[str, ...]
    dropped: int
    problems: tuple[str, ...]


def executed_instructions(paths: Iterable[Path]) -> ExecutedInstructions:
    """Return what recordings hold of executed instructions, added up by kernel. Raises UllageError for a file that is no recording."""
    kernels: dict[str, ExecutedKernel] = {}
    chips: dict[str, None] = {}
    problems: dict[str, None] = {}
    lacking: dict[str, None] = {}
    dropped = 0
    for path in paths:
        names: dict[int, str] = {}
        for chunk in _whole_chunks(path):
            if chunk.type == ChunkType.NAMES and chunk.flags == 1:
                names |= chunk.names()
            elif chunk.type == ChunkType.INFO:
                problems |= dict.fromkeys(recorded_problems(chunk.json(), DOING, WORDS, SINCE))
            elif chunk.type == ChunkType.SASS:
                try:
                    told = _context_counts(chunk)
                except (UllageError, ValueError, TypeError, KeyError):
                    problems["some counts are damaged, and were left out"] = None
                    continue
                chips[told.chip], dropped = None, dropped + told.dropped
                lacking |= dict.fromkeys(told.lacking)
                for number, launches, *values in told.kernels:
                    kernel = kernels.setdefault(names.get(number, "(no name)"), ExecutedKernel())
                    kernel.launches += launches
                    for metric, value in zip(told.metrics, values, strict=True):
                        kernel.counts[metric] = kernel.counts.get(metric, 0) + value
    return ExecutedInstructions(kernels, tuple(chips), tuple(lacking), dropped, tuple(problems))


@dataclass(frozen=True)
class _ContextCounts:
    chip: str
    dropped: int
    metrics: list[str]
    lacking: list[str]
    kernels: list[list[int]]


def _context_counts(chunk: Chunk) -> _ContextCounts:
    """Return what a chunk says. Raises ValueError, TypeError or KeyError where it is damaged."""
    json = chunk.json()
    metrics, lacking = ([harmless(str(name), 100) for name in json[key]] for key in ("metrics", "lacking"))
    kernels = [[int(number) for number in row] for row in json["kernels"]]
    if any(len(row) != 2 + len(metrics) or min(row) < 0 for row in kernels):
        raise ValueError("rows are not as long as the metrics say")
    return _ContextCounts(str(json["chip"]), int(json["dropped"]), metrics, lacking, kernels)


def _whole_chunks(path: Path) -> Iterator[Chunk]:
    with path.open("rb") as file:
        try:
            yield from chunks(file, harmless(str(path)))
        except EarlyEnd:
            return  # a program that was killed: what came before is good
