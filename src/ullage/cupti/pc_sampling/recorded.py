"""Program counters that the recorder sampled in an unmodified program: its recordings as the samples that the report is made of.

The recorder is `native/stalls.c`, which `ullage run --stalls` tells to sample.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.cupti.chunks import MAGIC, SAMPLE, Chunk, ChunkType, EarlyEnd, chunks
from ullage.cupti.pc_sampling.samples import SAMPLES, Facts, PcSamples, gathered
from ullage.cupti.releases import release
from ullage.cupti.results import recorded_problems
from ullage.errors import UllageError, harmless

ENDING = ".ullage"
DOING = "sampling program counters"  # the detail of a problem that is one of the recorder's calls of CUPTI
MANY = 1_000_000  # rows kept before counts of one place are added up
WORDS = {
    "a second context": "not every context was sampled",
    "a context's last samples": "a context's last samples are missing: it was destroyed while it was being read",
    "keeping machine code": "not all machine code was kept",
    "samples": "some samples could not be written",
}


def is_recorded(path: Path) -> bool:
    """Whether a path is a recording, or a folder of them."""
    if path.is_dir():
        return any(path.rglob(f"*{ENDING}"))
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def recorded(path: Path) -> PcSamples:
    """Return what a recording, or a folder of recordings, holds of samples; raises UllageError as `sampled` does."""
    return sampled(sorted(path.rglob(f"*{ENDING}")) if path.is_dir() else [path])


def sampled(paths: Iterable[Path]) -> PcSamples:
    """Return the samples of some recordings as one: contexts are numbered through, counts of one place and reason added up.

    What a killed program had written is there. Raises UllageError for a file that is no recording.
    """
    whole = _Whole()
    for path in paths:
        _read(path, whole)
    return PcSamples(gathered(whole.tables), _facts(whole), whole.cubins)


@dataclass
class _Context:
    """A sampled context: its number in the result, its reasons by index, how it was sampled and what CUPTI counted of it."""

    number: int
    reasons: dict[int, str] = field(default_factory=dict)
    cycles: int | None = None
    mode: str | None = None


@dataclass
class _Whole:
    """What the recordings that were read so far add up to."""

    tables: list[pa.Table] = field(default_factory=list)
    cubins: dict[int, bytes] = field(default_factory=dict)
    contexts: list[_Context] = field(default_factory=list)
    releases: set[str] = field(default_factory=set)
    problems: dict[str, None] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("total", "dropped", "other", "full", "unread"), 0))


def _read(path: Path, whole: _Whole) -> None:
    names: dict[int, str] = {}
    contexts: dict[int, _Context] = {}
    info: dict[str, Any] = {}
    for chunk in _whole_chunks(path):
        if chunk.type == ChunkType.NAMES and chunk.flags == 1:
            names |= chunk.names()
        elif chunk.type == ChunkType.INFO:
            info |= chunk.json()
        elif chunk.type == ChunkType.CUBIN and len(chunk.payload) > 8:
            whole.cubins[struct.unpack_from("<Q", chunk.payload)[0]] = chunk.payload[8:]
        elif chunk.type == ChunkType.SAMPLES:
            _add(chunk, names, contexts, whole)
    whole.problems |= dict.fromkeys(recorded_problems(info, DOING, WORDS))
    if isinstance(version := info.get("cupti"), int):
        whole.releases |= _release(version)


def _whole_chunks(path: Path) -> Iterator[Chunk]:
    with path.open("rb") as file:
        try:
            yield from chunks(file, harmless(str(path)))
        except EarlyEnd:
            return  # a program that was killed: what came before is good


def _release(version: int) -> set[str]:
    try:
        return {release(version).name}
    except UllageError:
        return set()


def _add(chunk: Chunk, names: dict[int, str], contexts: dict[int, _Context], whole: _Whole) -> None:
    """Take in a chunk of samples; one that is damaged is left out and noted."""
    try:
        told, rows = _unpacked(chunk.payload)
        number = int(told["context"])
        if number not in contexts:
            contexts[number] = _Context(len(whole.contexts))
            whole.contexts.append(contexts[number])
        context = contexts[number]
        if "reasons" in told:
            context.reasons = {int(index): str(name) for index, name in told["reasons"].items()}
            context.cycles, context.mode = told.get("cycles"), told.get("mode")
        grown = {name: int(told.get(name) or 0) for name in whole.counted}
        span = int(told.get("range") or 0)
    except (ValueError, TypeError, KeyError, AttributeError, struct.error, RecursionError):
        whole.problems["some samples are damaged, and were left out"] = None
        return
    for name, count in grown.items():
        whole.counted[name] += count
    if len(rows):
        whole.tables.append(_table(rows, context, span, names))
        if sum(table.num_rows for table in whole.tables) > MANY:
            whole.tables = [gathered(whole.tables)]


def _unpacked(payload: bytes) -> tuple[dict[str, Any], npt.NDArray[np.void]]:
    (length,) = struct.unpack_from("<I", payload)
    told = json.loads(payload[4 : 4 + length])
    at = 4 + length + -(4 + length) % 8
    return told, np.frombuffer(payload[at:], SAMPLE, count=max(len(payload) - at, 0) // SAMPLE.itemsize)


def _table(rows: npt.NDArray[np.void], context: _Context, span: int, names: dict[int, str]) -> pa.Table:
    count = len(rows)
    columns: dict[str, Any] = {name: rows[name] for name in ("cubin", "function_index", "pc", "correlation", "samples")}
    columns |= {
        "context": np.full(count, context.number, np.uint32),
        "range": np.full(count, span, np.uint64),
        "function": pa.array([names.get(int(one), "(no name)") for one in rows["function"]], pa.string()).dictionary_encode(),
        "reason_index": rows["reason"],
        "reason": pa.array([context.reasons.get(int(one), f"reason {one}") for one in rows["reason"]], pa.string()).dictionary_encode(),
    }
    return pa.table([pa.array(columns[name]) for name in SAMPLES.names], SAMPLES.names).cast(SAMPLES)


def _facts(whole: _Whole) -> Facts:
    cycles = {one.cycles for one in whole.contexts}
    problems = list(whole.problems)
    if len(cycles) > 1:
        problems.append("contexts were sampled at different periods: a sample stands for more cycles in some than in others")
    return Facts(
        release=_only(whole.releases),
        mode=_only({one.mode for one in whole.contexts}),
        cycles=_only(cycles),
        total=whole.counted["total"],
        dropped=whole.counted["dropped"],
        other=whole.counted["other"],
        full=whole.counted["full"],
        unread=whole.counted["unread"],
        problems=tuple(problems),
    )


def _only(values: set[Any]) -> Any:
    return next(iter(values)) if len(values) == 1 else None
