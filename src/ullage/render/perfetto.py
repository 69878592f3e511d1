"""A run in Perfetto's trace format, to be opened at ui.perfetto.dev: its states, or every event of its traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.recording import Recording
from ullage.render.perfetto_tracks import FreeTracks, TrackWriter, flows
from ullage.sums.lanes.run import Run
from ullage.sums.lanes.spans import Times, within
from ullage.sums.lanes.states import Key, ProcessState, RegionOccurrences
from ullage.sums.lanes.timeline import TimelineLane, beginnings, lanes

_ON_DEVICE = frozenset({"kernel", "collective", "memcpy", "memset", "graph", "lost"})
_LAUNCHING = frozenset({"launch", "graph", "copy"})
_NUMBERS = ("bytes", "blocks", "threads", "sequence", "members")  # what is said of an event, where it is known
_WORDS = ("operation", "group")
_NONE = -1


def perfetto(run: Run) -> Iterator[bytes]:
    """Yield a trace of a run's states: what each process and device was doing, regions, steps, and devices' kernel share by step.

    Captures without a common clock begin together. Times are ns.
    """
    writer, shift = TrackWriter(), beginnings(run)
    groups: dict[Key, int] = {}
    by_key = {p.key: p for p in run.processes}
    for lane in lanes(run, "ai"):
        group = writer.group()
        if lane.kind == "process":
            process = by_key[lane.owners[0]]
            groups[process.key] = group
            writer.name_group(group, _process_name(lane.name, process.key[1], process.host))
            yield from _host(writer, group, process, shift(process.key[0]))
        else:
            model = run.devices[lane.number].name
            writer.name_group(group, lane.name + (f", {model}" if model else ""))
            yield from _device(writer, group, lane, next((by_key[key] for key in lane.owners if key in by_key), None))
    yield from writer.taken()


def _host(writer: TrackWriter, group: int, process: ProcessState, shift: int) -> Iterator[bytes]:
    states = {"offload": process.offload, "communication": process.communication, "waits for the device": process.sync}
    states |= {"the recorder": process.recorder, "off the CPU": process.off}
    yield from _slices(writer, "host", group, {name: (s.start - shift, s.end - shift) for name, s in states.items() if s.pieces})
    if process.steps is not None:
        yield from _named(writer, "steps", group, [process.steps], shift)
    yield from _named(writer, "regions", group, list(process.occurrences.values()), shift)


def _device(writer: TrackWriter, group: int, lane: TimelineLane, owner: ProcessState | None) -> Iterator[bytes]:
    states = {name: (s.start - lane.shift, s.end - lane.shift) for name, s in lane.states.items() if s.pieces}
    yield from _slices(writer, "state", group, states)
    if owner is not None and owner.steps is not None and len(owner.steps.start):
        steps = owner.steps
        shares = within(lane.states["kernel"], steps.start, steps.end) / np.maximum(steps.end - steps.start, 1)
        moments = np.append(steps.start, steps.end[-1]) - lane.shift
        writer.values(writer.counter("kernel share by step", group, "1"), moments, [*shares.tolist(), 0.0])


def _slices(writer: TrackWriter, title: str, group: int, states: dict[str, tuple[Times, Times]]) -> Iterator[bytes]:
    """Write sets of spans that lie apart or inside one another as slices of one track."""
    if states:
        names = np.repeat(np.arange(len(states)), [len(start) for start, _ in states.values()])
        start, end = (np.concatenate([s[edge] for s in states.values()]) for edge in (0, 1))
        yield from _placed(writer, title, group, start, end, [list(states)[n] for n in names])


def _named(writer: TrackWriter, title: str, group: int, found: list[RegionOccurrences], shift: int) -> Iterator[bytes]:
    if found:
        start, end = (np.concatenate([getattr(step, edge) for step in found]) - shift for edge in ("start", "end"))
        yield from _placed(writer, title, group, start, end, [name for step in found for name in step.names])


def _placed(writer: TrackWriter, title: str, group: int, start: Times, end: Times, names: list[str]) -> Iterator[bytes]:
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    places = list(FreeTracks(nests=True).place(zip(start.tolist(), end.tolist(), strict=True)))
    tracks = [writer.track(title, group) for _ in range(max(places, default=-1) + 1)]
    yield from writer.slices([tracks[place] for place in places], start, end, [names[n] for n in order.tolist()])


def _process_name(label: str, number: int, host: str) -> str:
    return f"{label} (process {number}{' on ' + host if host else ''})"


def events(batches: Iterable[pa.RecordBatch], recording: Recording, *, number: int = 0) -> Iterator[bytes]:
    """Yield a trace of every event, as record batches of `tables.INTERVALS` come: a track a stream and a thread, in any order.

    An arrow leads from a launch to what it put on the device. Events that overlap on a stream go on further tracks of its name, so
    that none is lost. Memory stays within a batch. Of several files each gets another `number`; what comes of them may be joined.
    """
    export = _Export(recording, number)
    for batch in batches:
        yield from export.add(batch)
    yield from export.finish()


class _Export:
    """Groups for processes and devices, tracks for threads and streams, made when their first event comes."""

    def __init__(self, recording: Recording, number: int) -> None:
        self.writer, self.recording, self.flows = TrackWriter(number), recording, (number + 1 & 0x7FFF) << 48
        self.groups: dict[tuple[str, int], int] = {}
        self.tracks: dict[tuple[Any, ...], int] = {}
        self.places: dict[tuple[Any, ...], FreeTracks] = {}

    def add(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Write a batch's events."""
        if not batch.num_rows:
            return
        columns = _columns(batch)
        key = [columns[name] for name in ("kind_track", "device", "stream", "process", "thread")]
        order = np.lexsort((-columns["end"], columns["start"], *key))
        cuts = np.flatnonzero(np.any([np.diff(column[order]) != 0 for column in key], axis=0)) + 1
        said = _said(batch)
        for rows in np.split(order, cuts):
            yield from self._track(batch, columns, rows, said)

    def _track(self, batch: pa.RecordBatch, columns: dict[str, Times], rows: Times, said: dict[str, list[Any]]) -> Iterator[bytes]:
        """Write the events of one track, sorted by their start."""
        kinds, names = _texts(batch["kind"], rows), _texts(batch["name"], rows)
        first = {name: int(columns[name][rows[0]]) for name in ("device", "stream", "process", "thread")}
        on_device = kinds[0] in _ON_DEVICE
        group, title = self._home(kinds[0] or "", first)
        start, end = columns["start"][rows], columns["end"][rows]
        found = self.places.setdefault((group, title), FreeTracks(nests=not on_device))
        tracks = [self._numbered(group, title, place) for place in found.place(zip(start.tolist(), end.tolist(), strict=True))]
        more = self._arrows(columns["correlation"][rows], first["process"], None if on_device else _texts(batch["call"], rows))
        for label, values in said.items():
            for n, row in enumerate(rows.tolist()):
                if values[row] is not None:
                    more[n] += self.writer.note(label, values[row])
        called = [name or kind or "?" for name, kind in zip(names, kinds, strict=True)]
        yield from self.writer.slices(tracks, start, end, called, more)

    def _numbered(self, group: int, title: str, place: int) -> int:
        track = self.tracks.get((group, title, place))
        if track is None:
            track = self.tracks[group, title, place] = self.writer.track(title, group)
        return track

    def _arrows(self, correlation: Times, process: int, calls: list[str | None] | None) -> list[bytes]:
        """Return for each event what ties a call to the work that it put on the device; nothing for other calls."""
        several = len(self.recording.processes) > 1 and process >= 0
        numbers = (self.flows ^ ((process & 0xFFFF) << 32 if several else 0)) ^ (correlation & 0xFFFF_FFFF)
        tied = correlation > 0
        if calls is not None:
            tied &= np.array([call in _LAUNCHING for call in calls])
        return [arrow if is_tied else b"" for arrow, is_tied in zip(flows(numbers.astype(np.uint64)), tied.tolist(), strict=True)]

    def finish(self) -> Iterator[bytes]:
        """Name the groups, now that everything the recording says of itself is known."""
        for (sort, number), group in self.groups.items():
            self.writer.name_group(group, self._device(number) if sort == "device" else self._process(number))
        yield from self.writer.taken()

    def _home(self, kind: str, first: dict[str, int]) -> tuple[int, str]:
        if kind in _ON_DEVICE:
            sort, number, title = "device", first["device"], f"stream {_known(first['stream'])}"
        else:
            sort, number = "process", first["process"]
            title = f"thread {_known(first['thread'])}: {_TITLES.get(kind, kind)}"
        group = self.groups.get((sort, number))
        if group is None:
            group = self.groups[sort, number] = self.writer.group()
        return group, title

    def _process(self, number: int) -> str:
        process = self.recording.processes.get(number)
        rank = process.rank if process is not None and process.rank is not None else self.recording.rank
        named = [f"rank {rank}" if rank is not None else "", process.name if process is not None else ""]
        label = ", ".join(word for word in named if word) or "process"
        host = (process.host if process is not None else "") or self.recording.host
        return _process_name(label, number, host) if number >= 0 else label

    def _device(self, number: int) -> str:
        device = self.recording.devices.get(number)
        rank = f" (rank {self.recording.rank})" if self.recording.rank is not None else ""
        return f"GPU {_known(number)}{', ' + device.name if device is not None and device.name else ''}{rank}"


_TITLES = {
    "api": "GPU interface",
    "region": "regions",
    "step": "steps",
    "mpi": "communication",
    "helper": "communication of a helper",
    "parallel": "waits in parallel regions",
    "operator": "operators",
    "module": "modules",
    "function": "Python",
    "lookup": "embedding lookups",
}


def _known(number: int) -> str:
    return str(number) if number >= 0 else "?"


def _columns(batch: pa.RecordBatch) -> dict[str, Times]:
    """Return the numbers by which events find their track; those of a device belong to no thread, those of a host to no stream."""
    columns = {name: _whole(batch[name]) for name in ("start", "end", "process", "thread", "device", "stream", "correlation")}
    table = batch["kind"].dictionary.to_pylist()
    codes = np.array([0 if kind in _ON_DEVICE else place + 1 for place, kind in enumerate(table)], np.int64)
    columns["kind_track"] = codes[_whole(batch["kind"].indices)]
    device = columns["kind_track"] == 0
    for name, mask in (("thread", device), ("device", ~device), ("stream", ~device)):
        columns[name] = np.where(mask, _NONE, columns[name])
    return columns


def _whole(values: pa.Array) -> npt.NDArray[np.int64]:
    filled = values.fill_null(_NONE) if values.null_count else values
    return filled.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


def _texts(values: pa.DictionaryArray, rows: Times) -> list[str | None]:
    table, codes = values.dictionary.to_pylist(), _whole(values.indices)[rows].tolist()
    return [table[code] if code >= 0 else None for code in codes]


def _said(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """Return what is known of the events beside their times, a list a label; labels of which nothing is known are left out."""
    return {name: batch[name].to_pylist() for name in (*_NUMBERS, *_WORDS) if batch[name].null_count < len(batch[name])}
