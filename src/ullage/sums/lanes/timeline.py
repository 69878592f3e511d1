"""What a picture of a run can show: its lanes, each state's time in columns of pixels, and which part is worth a closer look.

A picture has a thousand columns, a trace has millions of spans: so every state is summed exactly within each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ullage.recording import Mode
from ullage.sums.lanes.run import Run
from ullage.sums.lanes.spans import NONE, Spans, Times, gaps, join, spans, subtract, within
from ullage.sums.lanes.states import DeviceState, Key, ProcessState

CANDIDATES = 2_000  # windows that are compared in search of the one with the most idle time


@dataclass(frozen=True)
class TimelineLane:
    """A process or a device as a picture shows it: `states` are disjoint, in the order in which they are stacked.

    `seen` is when it was looked at; `shift` is what to take from its times (ns) to lay it beside the others. A process'
    `number` is its place among the processes, a device's its place among the devices of the run.
    """

    kind: str  # process, device
    number: int
    name: str
    seen: Spans
    shift: int
    states: dict[str, Spans]
    owners: tuple[Key, ...]


def columns(s: Spans, low: int, high: int, pixels: int) -> Times:
    """Return how many ns of each of `pixels` equal columns from `low` to `high` a set covers: exact, they add up to all of it.

    >>> columns(spans((0, 10), (20, 30)), 0, 40, 4).tolist()
    [10, 0, 10, 0]
    """
    at = edges(low, high, pixels)
    return within(s, at[:-1], at[1:])


def edges(low: int, high: int, pixels: int) -> Times:
    """Return the `pixels` + 1 edges of equal columns, in whole ns; no column is more than 1 ns longer than another.

    >>> edges(0, 10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    whole, rest = divmod(high - low, pixels)
    place = np.arange(pixels + 1, dtype=np.int64)
    return low + whole * place + rest * place // pixels  # never the product of a long time and a number of columns


def part(s: Spans, low: int, high: int) -> Spans:
    """Return what of a set lies between `low` and `high`, by two look-ups instead of a sort.

    >>> part(spans((0, 10), (20, 30)), 5, 25)
    Spans(start=array([ 5, 20]), end=array([10, 25]))
    """
    first, last = int(np.searchsorted(s.end, low, side="right")), int(np.searchsorted(s.start, high, side="left"))
    if first >= last:
        return NONE
    return Spans(np.maximum(s.start[first:last], low), np.minimum(s.end[first:last], high))


def moved(s: Spans, by: int) -> Spans:
    """Return a set with `by` ns added to every moment."""
    return Spans(s.start + by, s.end + by) if by else s


def beginnings(run: Run) -> Callable[[str], int]:
    """Return what to take from the times of a capture, by its place, so that captures lie beside one another.

    Nothing where all have one clock; the capture's own beginning where one of several has a clock of its own.
    """
    apart = len(run.captures) > 1 and any(c.recording.clock == "own" for c in run.captures)
    begins = {c.recording.place: c.window[0] for c in run.captures} if apart else {}
    return lambda place: begins.get(place, 0)


def lanes(run: Run, mode: Mode) -> tuple[TimelineLane, ...]:
    """Return every process, each followed by the devices that it is the first to own; devices of nobody come last."""
    shift, found = beginnings(run), []
    of_owner: dict[Key | None, list[TimelineLane]] = {}
    for number, device in enumerate(run.devices):
        owner = device.owners[0] if device.owners else None
        of_owner.setdefault(owner, []).append(_device(run, device, number, shift(_place(run, device)), mode))
    for number, process in enumerate(run.processes):
        found += [_process(process, number, shift(process.key[0])), *of_owner.pop(process.key, ())]
    return (*found, *(lane for rest in of_owner.values() for lane in rest))


def extent(run: Run) -> tuple[int, int]:
    """Return the first and the last moment of a run that were looked at, on the clock of its lanes."""
    shift = beginnings(run)
    seen = [(p.window, shift(p.key[0])) for p in run.processes] or [(c.window, shift(c.recording.place)) for c in run.captures]
    return (min(w[0] - s for w, s in seen), max(w[1] - s for w, s in seen)) if seen else (0, 1)


def _process(process: ProcessState, number: int, shift: int) -> TimelineLane:
    busy = join(process.offload, process.communication, process.recorder, process.off)
    states = {"useful": gaps(busy, *process.window), "offload": process.offload, "communication": process.communication}
    states |= {"off": process.off} if process.off_known else {}
    return TimelineLane("process", number, process.label, spans(process.window), shift, states, (process.key,))


def _device(run: Run, device: DeviceState, number: int, shift: int, mode: Mode) -> TimelineLane:
    seen = run.seen(device, run.lives()) if run.processes else spans(*(c.window for c in run.captures))
    kernel = join(device.kernel, device.collective) if mode == "talp" else device.kernel
    states = {"kernel": kernel, "collective": device.collective, "memory": device.memory, "unknown": device.unknown}
    if mode == "talp":
        del states["collective"]
    quiet = subtract(seen, join(device.busy, device.unknown))
    return TimelineLane("device", number, f"GPU {number}", seen, shift, {**states, "idle": quiet}, device.owners)


def _place(run: Run, device: DeviceState) -> str:
    if device.owners:
        return device.owners[0][0]
    return next((c.recording.place for c in run.captures if any(d.key == device.key for d in c.devices)), "")


def told(run: Run, found: Sequence[TimelineLane], most: int) -> tuple[tuple[TimelineLane, ...], dict[int, str]]:
    """Return at most about `most` lanes that tell the story, and what is said of the processes chosen, by their number.

    Of many processes the one whose devices compute least (whose host is useful least, without devices), the median and the
    best; of a process' many devices likewise.
    """
    if len(found) <= most:
        return tuple(found), {}
    keys = [p.key for p in run.processes]
    worth = [_worth(found, key) for key in keys]
    chosen = _three(worth) if len(keys) > 3 else dict.fromkeys(range(len(keys)), "")
    kept: list[TimelineLane] = []
    for number in list(chosen) or [-1]:
        mine = [lane for lane in found if (lane.owners and lane.owners[0] == keys[number])] if keys else list(found)
        own = [lane for lane in mine if lane.kind == "device"]
        room = max(1, (most - len(chosen)) // max(len(chosen), 1))
        places = set(_three([_active(lane) for lane in own])) if len(own) > max(room, 3) else set(range(len(own)))
        kept += [lane for lane in mine if lane.kind == "process"] + [lane for n, lane in enumerate(own) if n in places]
    return tuple(kept), {number: word for number, word in chosen.items() if word}


def _three(worth: Sequence[int]) -> dict[int, str]:
    order = sorted(range(len(worth)), key=lambda n: (worth[n], n))
    return {order[0]: "worst", order[len(order) // 2]: "median", order[-1]: "best"}


def _worth(found: Sequence[TimelineLane], key: Key) -> int:
    own = [lane for lane in found if lane.owners and lane.owners[0] == key]
    devices = [_active(lane) for lane in own if lane.kind == "device"]
    return sum(devices) if devices else sum(lane.states["useful"].total for lane in own)


def _active(lane: TimelineLane) -> int:
    return lane.states["kernel"].total


def closer(run: Run, shown: Sequence[TimelineLane], low: int, high: int, pieces: int) -> tuple[int, int, str]:
    """Return the part worth a closer look, and why: the median step, or a window of some `pieces` spans that idles most."""
    process = next((p for p in run.processes if p.steps is not None and len(p.steps.start) > 1), None)
    if process is not None and process.steps is not None:
        steps, shift = process.steps, beginnings(run)(process.key[0])
        middle = int(np.argsort(steps.end - steps.start, kind="stable")[len(steps.start) // 2])
        name, count = steps.names[middle], len(steps.start)
        return int(steps.start[middle]) - shift, int(steps.end[middle]) - shift, f"{name}: of {count:,} steps the one of median length"
    return _idlest(shown, low, high, pieces)


def _idlest(shown: Sequence[TimelineLane], low: int, high: int, pieces: int) -> tuple[int, int, str]:
    """Return the window with the most lost time among those in which no less happens than in a window on average.

    Without that condition the answer is always the same dull one: before the first kernel, or after the last.
    """
    device = [lane for lane in shown if lane.kind == "device"]
    of = device or list(shown)
    idle = "idle" if device else "communication"
    starts = [(lane, np.sort(np.concatenate([s.start for name, s in lane.states.items() if name != idle]))) for lane in of]
    total = sum(len(begun) for _, begun in starts)
    wide = max(1, min(high - low, (high - low) * pieces // max(total, 1)))
    at = low + np.linspace(0, high - low - wide, CANDIDATES).astype(np.int64)
    happens, lost = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    for lane, begun in starts:
        happens += np.searchsorted(begun, at + wide + lane.shift) - np.searchsorted(begun, at + lane.shift)
        lost += within(lane.states[idle], at + lane.shift, at + wide + lane.shift)
    lively = happens >= min(max(total * wide // max(high - low, 1), 1), int(happens.max()))
    best = int(np.argmax(np.where(lively, lost, -1)))
    why = "where devices at work idle most" if device else "where communication takes most"
    return int(at[best]), int(at[best]) + wide, why


def together(found: Sequence[TimelineLane], low: int, high: int, pixels: int) -> dict[str, Times]:
    """Return each state's ns in each column, summed over lanes."""
    sums: dict[str, Times] = {}
    for lane in found:
        for name, s in lane.states.items():
            covered = columns(s, low + lane.shift, high + lane.shift, pixels)
            sums[name] = sums[name] + covered if name in sums else covered
    return sums
