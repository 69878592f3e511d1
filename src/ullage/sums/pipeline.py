"""A training step of many ranks as operations that wait for one another: pipeline stages, replicas, collectives.

What waits for what (Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025, section 3.2):

- a rank computes one thing after another, in the order recorded; its sends and receives of each kind follow one another as well;
- a forward or backward pass waits for the receive of its input, a send waits for the pass whose output it sends, and a receive for the pass
  of its kind before (its buffer is free then);
- the first backward send and receive wait for the last but one forward pass of the pipeline's warm-up;
- a send and its receive are one transfer; so is a collective of parameters or gradients on all replicas of a stage, that of the shared
  embedding on the first and last stage, and the clipping of gradients on all ranks;
- parameters are gathered before the first forward pass of their chunk; after a rank's last pass come `TAIL`, one after another. Where there
  is a `separate-grads-all-reduce`, gradients are reduced while the rank computes: each chunk's after its last backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.arrays import plain
from ullage.sums.replay import Graph, Indices, Seconds, graph, own_durations

FORWARD, BACKWARD = "forward-compute", "backward-compute"
TAIL = (
    "gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "grads-reduce-scatter", "separate-grads-all-reduce",
    "optimizer-clip-main-grad", "optimizer",
)  # fmt: skip
TRANSFERS = ("forward-send", "forward-recv", "backward-send", "backward-recv")
TYPES = (FORWARD, BACKWARD, *TRANSFERS, "params-all-gather", *TAIL)
COMMUNICATION = (*TRANSFERS, "params-all-gather", *TAIL[1:6])
_CODE = {word: code for code, word in enumerate(TYPES)}
_ACROSS_REPLICAS = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
_NONE = -1

Mask = npt.NDArray[np.bool_]
Edges = tuple[Indices, Indices]


@dataclass(frozen=True)
class Operations:
    """Rows of `tables.OPERATIONS` as NumPy arrays of one length; `type` are codes into `TYPES`; a chunk or microbatch not known is -1."""

    step: Indices
    rank: Indices
    dp_rank: Indices
    stage: Indices
    type: Indices
    sequence: Indices
    chunk: Indices
    microbatch: Indices
    start: Indices
    end: Indices

    def __len__(self) -> int:
        return len(self.start)

    def at(self, rows: Mask | Indices) -> Operations:
        """Return the rows where a mask is true, or those at positions."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def of(self, *types: str) -> Mask:
        """Return which rows are of some types."""
        return np.isin(self.type, [_CODE[word] for word in types])

    @property
    def worker(self) -> Indices:
        """A number for each rank in each step."""
        return numbered(self.step, self.dp_rank, self.stage)


def operations(table: pa.Table) -> Operations:
    """Return a table of `tables.OPERATIONS` as arrays, sorted by step, rank, start. All types must be in `TYPES`."""
    columns = {name: plain(table[name].combine_chunks(), _NONE) for name in table.column_names if name != "type"}
    words = table["type"].combine_chunks()
    codes = np.array([_CODE.get(word, _NONE) for word in words.dictionary.to_pylist()], np.int64)[plain(words.indices, 0)]
    order = np.lexsort((codes, columns["sequence"], columns["start"], columns["rank"], columns["step"]))
    return Operations(type=codes[order], **{name: values[order] for name, values in columns.items()})


@dataclass(frozen=True)
class Dependencies:
    """Who waits for whom, and what each operation itself took (ns): see `ullage.sums.replay`."""

    graph: Graph
    group: Indices
    durations: Seconds


def dependencies(done: Operations) -> Dependencies:
    """Return the dependencies of whole steps. Raises ValueError where operations wait for one another in a circle."""
    before, after = (np.concatenate(side) for side in zip(*_edges(done), strict=True))
    group = _groups(done)
    return Dependencies(graph(len(done), before, after, group), group, own_durations(done.start, done.end, group))


def whole_steps(done: Operations) -> Mask:
    """Return which rows are of steps of which nothing is missing: every rank is there, and each pass has its transfers."""
    steps, number = np.unique(done.step, return_inverse=True)
    broken = np.zeros(len(steps), bool)
    ranks = numbered(done.dp_rank, done.stage)
    seen = np.zeros((len(steps), int(ranks.max(initial=-1)) + 1), bool)
    seen[number, ranks] = True
    broken |= ~seen.all(axis=1)
    worker = done.worker
    for passes, transfers in _matched(done):
        counts = [np.bincount(worker[rows], minlength=int(worker.max(initial=-1)) + 1) for rows in (passes, transfers)]
        broken[number[(counts[0] != counts[1])[worker]]] = True
    return ~broken[number]


def _matched(done: Operations) -> Iterator[tuple[Indices, Indices]]:
    """Yield, for each kind of transfer in the order of `TRANSFERS`, the passes that need one and the transfers, both by rank and number."""
    order = np.lexsort((done.sequence, done.worker))
    last = done.chunk[done.of(FORWARD)].max(initial=0)
    for kind, without in zip(TRANSFERS, (last, 0, 0, last), strict=True):
        needs = done.of(FORWARD if kind.startswith("forward") else BACKWARD) & (done.chunk != without)
        yield order[needs[order]], order[done.of(kind)[order]]


def _edges(done: Operations) -> Iterator[Edges]:
    worker, passes = done.worker, done.of(FORWARD, BACKWARD)
    yield _chained(_rows(passes), worker, done.start, done.sequence)
    for (needing, transfers), kind in zip(_matched(done), TRANSFERS, strict=True):
        yield _chained(transfers, worker, done.start, done.sequence)
        if kind.endswith("send"):
            yield needing, transfers
        else:
            yield transfers, needing
            own = _rows(done.of(FORWARD if kind.startswith("forward") else BACKWARD))
            earlier, later = _chained(own, worker, done.sequence)
            free = dict(zip(later.tolist(), earlier.tolist(), strict=True))
            pairs = [(free[n], t) for n, t in zip(needing.tolist(), transfers.tolist(), strict=True) if n in free]
            yield _pairs(pairs)
    yield from _around(done, worker)


def _around(done: Operations, worker: Indices) -> Iterator[Edges]:
    """Yield what a rank's passes wait for before the first and what comes after the last."""
    overlapped = bool(done.of("separate-grads-all-reduce").any())
    yield _chained(_rows(done.of("params-all-gather", "grads-reduce-scatter")), worker, done.start, done.sequence)
    tail_types = [word for word in TAIL if not (overlapped and word == "grads-reduce-scatter")]
    tail = _rows(done.of(*tail_types))
    yield _chained(tail, worker, done.type, done.sequence)
    yield _joined(_last(_rows(done.of(FORWARD, BACKWARD)), worker, done.end), _first(tail, worker, done.type, done.sequence), worker)
    chunk = numbered(worker, done.chunk)
    gathers = _last(_rows(done.of("params-all-gather")), chunk, done.sequence)
    yield _joined(gathers, _first(_rows(done.of(FORWARD)), chunk, done.start), chunk)
    if overlapped:
        reduced = _rows(done.of("grads-reduce-scatter"))
        yield _joined(_last(_rows(done.of(BACKWARD)), chunk, done.end), _first(reduced, chunk, done.sequence), chunk)
        after = _first(_rows(done.of(*tail_types[1:])), worker, done.type, done.sequence)
        yield _joined(_last(reduced, worker, done.sequence), after, worker)
    yield _warm_up(done, worker)


def _warm_up(done: Operations, worker: Indices) -> Edges:
    """Return the edges to the first backward send and receive of each rank, from the last but one pass before its first backward pass."""
    passes = _rows(done.of(FORWARD, BACKWARD))
    passes = passes[np.lexsort((done.sequence[passes], done.start[passes], worker[passes]))]
    place = np.arange(len(passes)) - np.searchsorted(worker[passes], worker[passes])
    is_back = done.type[passes] == _CODE[BACKWARD]
    first = {int(worker[row]): at for at, row in reversed(list(enumerate(passes.tolist()))) if is_back[at]}
    source = {own: int(passes[at - 2]) for own, at in first.items() if place[at] >= 2}
    targets = np.concatenate([_first(_rows(done.of(kind)), worker, done.start, done.sequence) for kind in TRANSFERS[2:]])
    return _pairs([(source[own], row) for row in targets.tolist() if (own := int(worker[row])) in source])


def _groups(done: Operations) -> Indices:
    """Return the number of each operation's transfer or collective, -1 for what a rank does for itself."""
    group = np.full(len(done), _NONE, np.int64)
    zero = np.zeros(len(done), np.int64)
    for word in _ACROSS_REPLICAS:
        _add(group, _rows(done.of(word)), done.step, done.stage, done.sequence)
    _add(group, _rows(done.of("optimizer-clip-main-grad")), done.step, zero)
    ends = done.of("embedding-grads-all-reduce") & np.isin(done.stage, (0, done.stage.max(initial=0)))
    _add(group, _rows(ends), done.step, done.dp_rank)
    edge, microbatch = zero.copy(), zero.copy()
    for (passes, transfers), shift in zip(_matched(done), (1, 0, 0, 1), strict=True):
        edge[transfers] = done.chunk[passes] + shift  # the chunk above the border that the transfer crosses
        microbatch[transfers] = done.microbatch[passes]
    for pair in (TRANSFERS[:2], TRANSFERS[2:]):
        _add(group, _rows(done.of(*pair)), done.step, done.dp_rank, edge, microbatch)
    return group


def _add(group: Indices, rows: Indices, *keys: Indices) -> None:
    """Number `rows` by their keys, above all numbers given so far."""
    group[rows] = numbered(*(key[rows] for key in keys)) + group.max(initial=_NONE) + 1


def numbered(*keys: Indices) -> Indices:
    """Return a number for each combination of keys, from 0."""
    number = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        _, own = np.unique(key, return_inverse=True)
        _, number = np.unique(number * (int(own.max(initial=0)) + 1) + own, return_inverse=True)
    return number


def _rows(mask: Mask) -> Indices:
    return np.flatnonzero(mask)


def _pairs(pairs: list[tuple[int, int]]) -> Edges:
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _sorted(rows: Indices, *keys: Indices) -> Indices:
    return rows[np.lexsort(tuple(key[rows] for key in reversed(keys)))]


def _chained(rows: Indices, lane: Indices, *order: Indices) -> Edges:
    """Return an edge from each row to the next of its lane."""
    rows = _sorted(rows, lane, *order)
    same = lane[rows[1:]] == lane[rows[:-1]]
    return rows[:-1][same], rows[1:][same]


def _first(rows: Indices, lane: Indices, *order: Indices) -> Indices:
    """Return the first row of each lane, sorted by lane."""
    rows = _sorted(rows, lane, *order)
    return rows[np.flatnonzero(np.diff(lane[rows], prepend=-1))]


def _last(rows: Indices, lane: Indices, *order: Indices) -> Indices:
    rows = _sorted(rows, lane, *order)
    return rows[np.flatnonzero(np.diff(lane[rows], append=-1))]


def _joined(before: Indices, after: Indices, lane: Indices) -> Edges:
    """Return an edge in each lane that has both a row of `before` and one of `after`; each has one a lane at most."""
    _, first, second = np.intersect1d(lane[before], lane[after], assume_unique=True, return_indices=True)
    return before[first], after[second]
