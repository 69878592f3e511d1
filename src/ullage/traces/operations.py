"""Operations of a training job's ranks, a row each, as Parquet: the form in which the what-if analysis of stragglers was published.

Columns: `dp_rank`, `stage`, `rank`, `step`, `optype` (one of `TYPES`), `start_ts` and `duration` in s, `seq_id` (the operation's number
among those of its type, step and rank), `mb_id` (microbatch), `mc` and `gmc` (the chunk of layers within the rank and within the model; -1
where there is none). Times count from a moment of the file's own, or from the start of each step: then steps are laid end to end. Of ranks
that share a tensor-parallel group one is enough; of several at one place the lowest is read.

Source: github.com/ByteDance-Seed/StragglerAnalysis, readme (Lin et al., OSDI 2025).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.arrays import plain
from ullage.checked_parquet import opened
from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.recording import Device, Process, Recording
from ullage.tables import OPERATIONS, intervals
from ullage.traces.trace import File, TraceOptions, trace

MAGIC = b"PAR1"
COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")
TYPES = (
    "forward-compute", "backward-compute", "forward-send", "forward-recv", "backward-send", "backward-recv", "params-all-gather", "gc",
    "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "grads-reduce-scatter", "separate-grads-all-reduce",
    "optimizer-clip-main-grad", "optimizer",
)  # fmt: skip
_OPERATIONS = {
    "params-all-gather": "allgather", "grads-reduce-scatter": "reducescatter", "layernorm-grads-all-reduce": "allreduce",
    "embedding-grads-all-reduce": "allreduce", "separate-grads-all-reduce": "allreduce", "optimizer-clip-main-grad": "allreduce",
}  # fmt: skip
COMPUTE = ("forward-compute", "backward-compute", "gc", "optimizer")
_LONGEST = 1e9  # s: a time or duration beyond 30 years is none
_NONE = -1


def _recognise(file: File) -> int:
    if not file.head.startswith(MAGIC):
        return 0
    try:
        with opened(file.path) as parquet:
            return 2 if set(COLUMNS) <= set(parquet.schema_arrow.names) else 0
    except (OSError, pa.ArrowException):
        return 0


@trace(
    "operations", recognise=_recognise, reads="operations of a training job by rank and stage (Parquet: dp_rank, stage, step, optype, …)"
)
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:  # noqa: ARG001
    """Yield one batch: each rank is a device, what it computes are kernels, what it communicates are collectives."""
    table = read_operations([file.path], problems)
    recording.source, recording.prefers = "operations of a training job", "ai"
    for rank in table["rank"].unique().to_pylist():
        recording.devices[rank] = Device(f"rank {rank}")
        recording.processes[rank] = Process(rank)
    problems.note("each rank is taken for a device of which this file tells all; ullage trace stragglers says who holds the others up")
    yield intervals(_on_devices(table))


def _on_devices(table: pa.Table) -> dict[str, Any]:
    """Return the columns of intervals, steps laid end to end."""
    step, rank, start, end, sequence = (plain(table[name].combine_chunks(), _NONE) for name in ("step", "rank", "start", "end", "sequence"))
    words = table["type"].to_pylist()
    shift = laid_out(step, start, end)
    stream = np.array([TYPES.index(word) for word in words], np.int64)
    where = zip(words, *(table[name].to_pylist() for name in ("rank", "dp_rank", "stage")), strict=True)
    groups = [None if word in COMPUTE else f"{word}, {_of_whom(word, *place)}" for word, *place in where]
    return {
        "start": start + shift,
        "end": end + shift,
        "kind": ["kernel" if word in COMPUTE else "collective" for word in words],
        "name": words,
        "process": rank,
        "device": rank.astype(np.int32),
        "stream": np.where(stream < 2, 0, stream),
        "operation": [None if word in COMPUTE else _OPERATIONS.get(word, "sendrecv") for word in words],
        "group": groups,
        "sequence": step * (int(sequence.max(initial=0)) + 1) + sequence,
    }


def _of_whom(word: str, rank: int, replica: int, stage: int) -> str:
    """Return who takes part in a transfer; of sends and receives it is not recorded which of them meet."""
    if word in ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"):
        return f"stage {stage}"
    if word == "optimizer-clip-main-grad":
        return "all ranks"
    return f"replica {replica}" if word == "embedding-grads-all-reduce" else f"rank {rank}"


def laid_out(step: npt.NDArray[np.int64], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return what to add to each row's times (ns) so that steps follow one another: nothing where they do already.

    >>> laid_out(np.array([1, 1, 2]), np.array([0, 5, 0]), np.array([4, 9, 3])).tolist()
    [0, 0, 9]
    """
    steps, number = np.unique(step, return_inverse=True)
    begins = np.full(len(steps), np.iinfo(np.int64).max)
    ends = np.full(len(steps), np.iinfo(np.int64).min)
    np.minimum.at(begins, number, start)
    np.maximum.at(ends, number, end)
    if (begins[1:] > begins[:-1]).all() and (begins[1:] * 2 >= begins[:-1] + ends[:-1]).all():  # they may overlap a little
        return np.zeros(len(step), np.int64)
    before = np.concatenate(([0], np.cumsum(ends - begins)[:-1]))
    return np.asarray((before - begins)[number], np.int64)


def read_operations(paths: list[Path], problems: Problems) -> pa.Table:
    """Return the operations of a job from its files as a table of `tables.OPERATIONS`; rows that can't be used are counted in `problems`.

    Raises UllageError for a file that can't be read, lacks a column, or holds no operation.
    """
    tables = [_read(path, problems) for path in paths]
    table = _one_rank_a_place(pa.concat_tables(tables).unify_dictionaries(), problems)
    if not len(table):
        raise UllageError(
            f"{harmless(str(paths[0]), 4096)} holds no operation that can be used", f"optype must be one of {', '.join(TYPES)}"
        )
    return table


def _read(path: Path, problems: Problems) -> pa.Table:
    name = harmless(str(path), 4096)
    try:
        with opened(path) as parquet:
            table = parquet.read(columns=list(COLUMNS))
            columns = {c: _column(table[c]) for c in COLUMNS if c != "optype"}
            words = table["optype"].combine_chunks().cast(pa.string())
    except (OSError, pa.ArrowException, KeyError) as error:
        raise UllageError(
            f"{name} can't be read as operations of a training job: {harmless(str(error))}", "copy or export it again"
        ) from error
    import pyarrow.compute as pc  # 10 MB, which no other format needs

    known = plain(pc.fill_null(pc.is_in(words, pa.array(TYPES)), False).cast(pa.int8()), 0) > 0
    problems.drop("operations of types that no dependency is known of", int((~known).sum()), name)
    fair = _fair(columns)
    problems.drop("operations without a time or place", int((known & ~fair).sum()), name)
    return _table({c: values[known & fair] for c, values in columns.items()}, words.filter(pa.array(known & fair)))


def _column(values: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Return a column as numbers, NaN for null; whole numbers are exact to 2^53, far beyond any count of steps or ranks."""
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def _fair(columns: dict[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.bool_]:
    fair = np.isfinite(columns["start_ts"]) & (np.abs(columns["start_ts"]) < 9 * _LONGEST)
    fair &= (columns["duration"] >= 0) & (columns["duration"] < _LONGEST)
    for name in ("dp_rank", "stage", "rank", "step", "seq_id"):
        fair &= (columns[name] >= 0) & (columns[name] < 2**31)
    for name in ("mc", "gmc", "mb_id"):
        fair &= np.isnan(columns[name]) | (np.abs(columns[name]) < 2**31)
    return fair


def _table(columns: dict[str, npt.NDArray[np.float64]], words: pa.Array) -> pa.Table:
    whole = {
        name: np.nan_to_num(values, nan=_NONE).astype(np.int64) for name, values in columns.items() if name not in ("start_ts", "duration")
    }
    start = np.round(columns["start_ts"] * 1e9).astype(np.int64)
    stages = int(whole["stage"].max(initial=0)) + 1
    chunk = np.where(whole["gmc"] >= 0, whole["gmc"], np.where(whole["mc"] >= 0, whole["mc"] * stages + whole["stage"], _NONE))
    made = {
        **{name: whole[name] for name in ("step", "rank", "dp_rank", "stage")},
        "type": words.dictionary_encode(),
        "sequence": whole["seq_id"],
        "chunk": pa.array(chunk, mask=chunk < 0),
        "microbatch": pa.array(whole["mb_id"], mask=whole["mb_id"] < 0),
        "start": start,
        "end": start + np.round(columns["duration"] * 1e9).astype(np.int64),
    }
    return pa.table(made, schema=OPERATIONS)


def _one_rank_a_place(table: pa.Table, problems: Problems) -> pa.Table:
    """Return the operations of the lowest rank at each place of replica and stage."""
    lowest = table.group_by(["dp_rank", "stage"]).aggregate([("rank", "min")])
    import pyarrow.compute as pc

    kept = table.filter(pc.is_in(table["rank"], lowest["rank_min"]))
    if len(kept) < len(table):
        problems.note("of the ranks at one place of replica and stage (tensor parallelism) the lowest is looked at")
    return kept
