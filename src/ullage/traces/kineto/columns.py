"""Events of a PyTorch profile into columns: work on devices, calls, steps and regions, and what is known of each."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ullage.traces.calls import is_collective, operation
from ullage.traces.json.array import ArrayChunk
from ullage.traces.kineto.category import API, DEVICE, ENGINE, FUNCTION, KERNEL, MEMCPY, MEMSET, NOTE, OPERATOR, OVERHEAD, WAIT
from ullage.traces.kineto.event import Communication, DeviceWork, Event, Tensors, named
from ullage.traces.kineto.gradients import sequenced
from ullage.traces.kineto.hidden import Operators
from ullage.traces.kineto.lookups import lookups
from ullage.traces.kineto.part import NOT_KNOWN, CodedWords, KinetoPart, Numbers, Times, joined, narrow, numbers, whole, words
from ullage.traces.kineto.products import asked
from ullage.traces.kineto.timed import LONGEST, Mask, TimedEvents, timed

_NEAR = 86_400 * 10**9  # ns from the middle of its chunk within which an operator is believed
_LAUNCHED = re.compile(r"^(\w*ccl|ucc):")  # a collective's launch, as PyTorch notes it: nccl:all_reduce
_ON_HOST = re.compile(r"^(gloo|mpi):")
_STEP = "ProfilerStep#"
_MODULE = "nn.Module: "
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_COMMUNICATION = "record_param_comms"
_BLOCKS = re.compile(
    r"^(c10d::(send|recv_|recv_any_source_)|_c10d_functional::wait_tensor)$"
)  # where the host waits, of its own collectives
_ALIKE = ("allreduce", "broadcast", "reduce", "send", "recv", "sendrecv")  # as much goes in as comes out
_SIZES = {
    **dict.fromkeys(("byte", "char", "bool", "uint8", "int8", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("short", "half", "bfloat16", "float16", "int16", "uint16"), 2),
    **dict.fromkeys(("int", "float", "float32", "int32", "uint32", "complexhalf"), 4),
    **dict.fromkeys(("long", "long int", "double", "float64", "int64", "uint64", "complexfloat"), 8),
    "complexdouble": 16,
}
PARTS = ("parts", "launches", "waits", "operator_steps", "products", "sequenced", "code")  # which of the columns are lists of parts
_STREAM_WAIT, _STREAM_SYNC, _EVENT_SYNC = "Stream Wait Event", "Stream Sync", "Event Sync"
_EVENT_WAIT = ("device", "stream", "correlation", "awaited_stream", "awaited")
_NO_STREAM = 2**32 - 1  # CUPTI's number for none
_KINDS = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset"}


@dataclass
class KinetoColumns:
    """What the chunks of a file gave: `parts` of rows that are yielded, and what is decided when the whole file is known.

    `launches` are operators that start a collective: whether it runs on the host, the metadata tells; their number `external` is
    also on the collective's kernels. `waits` are operators in which a host waits if the collective is its own, `operator_steps` the
    profiler's steps where they are noted as operators. `lived` has the first and last moment of each process' operators, `traced` that
    of its Python functions. `products` are the operators that multiply matrices, with what they asked for; `sequenced` those that autograd
    numbers; `code` are all operators and Python functions. `bad` counts device events by what is wrong with their duration, `untimed`
    those without a start, `impossible` calls and notes.
    """

    parts: list[KinetoPart] = field(default_factory=list)
    launches: list[KinetoPart] = field(default_factory=list)
    waits: list[KinetoPart] = field(default_factory=list)
    operator_steps: list[KinetoPart] = field(default_factory=list)
    products: list[KinetoPart] = field(default_factory=list)
    sequenced: list[KinetoPart] = field(default_factory=list)
    code: list[KinetoPart] = field(default_factory=list)
    operators: Operators = field(default_factory=Operators)
    lived: dict[int, tuple[int, int]] = field(default_factory=dict)
    traced: dict[int, tuple[int, int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    bad: Counter[str] = field(default_factory=Counter)
    untimed: int = 0
    impossible: int = 0
    whole_microseconds: bool = True
    known: dict[str, str] = field(default_factory=dict)

    def add(self, chunk: ArrayChunk[Event]) -> None:
        """Take in the events of a chunk."""
        found = timed(chunk)
        self.whole_microseconds &= found.whole
        self._name(found.nameless)
        for code in DEVICE:
            self._device(found.of(code))
        for code, take in ((API, self._calls), (NOTE, self._notes), (OVERHEAD, self._overhead), (WAIT, self._events)):
            rows = found.of(code)
            fair = rows.fair()
            if len(fair) < len(rows):  # what has no duration at all is another sort of event: the begin or end of something
                self.impossible += sum(event.dur is not None for event in rows.events) - len(fair)
            if fair:
                take(fair)
        operators = self._without_steps(found.of(OPERATOR).fair())
        _see(self.lived, operators)
        functions = found.of(FUNCTION).fair()
        _see(self.traced, functions)
        self._code(operators, functions)
        self._launches(operators)
        self._waits(operators)
        if (multiplying := asked(operators)) is not None:
            self.products.append(multiplying)
        if (numbered := sequenced(operators)) is not None:
            self.sequenced.append(numbered)
        if (looked := lookups(operators)) is not None:
            self.parts.append(looked)
        self.operators.add(operators)

    def join(self) -> None:
        """Make few large parts of many small ones."""
        for name in PARTS:
            setattr(self, name, joined(getattr(self, name)))

    def _name(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.name == "process_name" and isinstance(event.pid, int) and event.pid not in self.names and len(self.names) < 1000:
                self.names[event.pid] = named(event)

    def _device(self, rows: TimedEvents) -> None:
        if not rows:
            return
        good = rows.known & rows.fits & (rows.lasted > 0) & (rows.lasted < LONGEST)
        if not good.all():
            self._lost(rows.where(~good))
            rows = rows.where(good)
        if rows.category == ENGINE:
            moves = np.array([a.direction is not None for a in rows.args], bool)
            self._split(rows, moves, ("memcpy", "kernel"))
        elif rows.category == KERNEL:
            collective = np.array([a.collective is not None for a in rows.args], bool)
            self._split(rows, collective | rows.name.are(is_collective), ("collective", "kernel"))
        else:
            self._work(_KINDS[rows.category], rows)

    def _split(self, rows: TimedEvents, mask: Mask, kinds: tuple[str, str]) -> None:
        for kind, chosen in zip(kinds, (mask, ~mask), strict=True):
            if chosen.all():
                self._work(kind, rows)
            elif chosen.any():
                self._work(kind, rows.where(chosen))

    def _work(self, kind: str, rows: TimedEvents) -> None:
        if not rows:
            return
        part, args = self._on_device(kind, rows), rows.args
        if kind in ("memcpy", "memset"):
            part.numbers["bytes"] = numbers([a.bytes if a.size is None else a.size for a in args])
        else:
            part.numbers["blocks"] = numbers([-1 if (g := a.grid) is None else g.x * g.y * g.z for a in args])
            part.numbers["threads"] = narrow(numbers([-1 if (b := a.block) is None else b.x * b.y * b.z for a in args]))
            part.numbers["registers"] = narrow(numbers([-1 if a.registers is None else a.registers for a in args]))
            part.numbers["shared"] = narrow(numbers([-1 if a.shared is None else a.shared for a in args]))
        if kind == "kernel":
            part.numbers["external"] = narrow(numbers([a.external for a in args]))
        if kind == "collective":
            part = self._collective(part, rows.name.values(), args)
        self.parts.append(part)

    def _on_device(self, kind: str, rows: TimedEvents) -> KinetoPart:
        args: list[DeviceWork] = rows.args
        device = [event.pid if a.device is None else a.device for event, a in zip(rows.events, args, strict=True)]
        stream = [event.tid if a.stream is None else a.stream for event, a in zip(rows.events, args, strict=True)]
        found: Numbers = {
            "device": narrow(numbers(device)),
            "stream": numbers(stream),
            "correlation": numbers([a.correlation for a in args]),
        }
        return KinetoPart(kind, rows.start, rows.end, found, {"name": self._once(rows.name)})

    def _once(self, column: CodedWords) -> CodedWords:
        """Return a column whose words are those that were seen before, where they were: one copy of each."""
        return CodedWords(column.codes, [self.known.setdefault(word, word) for word in column.words])

    def _collective(self, part: KinetoPart, names: Sequence[str | None], args: Sequence[Communication]) -> KinetoPart:
        """Return rows of collectives with what their arguments say; `operation` falls back on the kernel's name."""
        part.numbers["bytes"] = numbers([payload(a) for a in args])
        part.numbers["sequence"] = numbers([a.sequence for a in args])
        part.numbers["members"] = narrow(numbers([a.members for a in args]))
        part.numbers["external"] = numbers([a.external for a in args])
        spoken = [a.collective or name or "" for a, name in zip(args, names, strict=True)]
        part.words["operation"] = words([operation(word) or a.collective for word, a in zip(spoken, args, strict=True)], self.known)
        part.words["group"] = words([None if a.group is None else str(a.group) for a in args], self.known)
        return part

    def _lost(self, rows: TimedEvents) -> None:
        """Keep device events without a true duration as moments; count them by what is wrong."""
        zero, negative = rows.fits & (rows.lasted == 0), rows.fits & (rows.lasted < 0)
        absent = np.array([event.dur is None for event in rows.events], bool)
        self.bad["device events without a duration"] += int(absent.sum())
        self.bad["device events with a duration of 0"] += int(zero.sum())
        self.bad["device events with a negative duration"] += int(negative.sum())
        self.bad["device events with an impossible duration"] += int((~(absent | zero | negative)).sum())
        self.untimed += int((~rows.known).sum())
        part = self._on_device("lost", replace(rows, lasted=np.zeros_like(rows.lasted)))
        self.parts.append(part.where(rows.known))

    def _calls(self, rows: TimedEvents) -> None:
        self.parts.append(self._host("api", rows, correlation=numbers([a.correlation for a in rows.args])))

    def _events(self, rows: TimedEvents) -> None:
        """Take in waits for events whose recording is known (or at least the stream that is waited for), and for streams."""
        of_stream, of_event = rows.name.are(_STREAM_SYNC.__eq__), rows.name.are(_EVENT_SYNC.__eq__)
        columns = {name: numbers([getattr(a, name) for a in rows.args]) for name in _EVENT_WAIT}
        columns["stream"], columns["awaited_stream"] = (
            np.where(of_stream | of_event, NOT_KNOWN, columns["stream"]),
            np.where(of_stream, columns["stream"], columns["awaited_stream"]),
        )
        columns["awaited"] = np.where(of_stream, NOT_KNOWN, columns["awaited"])
        known = of_stream | (of_event & (columns["awaited"] >= 0)) | rows.name.are(_STREAM_WAIT.__eq__)
        part = KinetoPart("event", rows.start, rows.end, columns, {})
        self.parts.append(part.where(known & (columns["awaited_stream"] >= 0) & (columns["awaited_stream"] < _NO_STREAM)))

    def _notes(self, rows: TimedEvents) -> None:
        kinds = {name: note(name or "") for name in {event.name for event in rows.events}}
        given = np.array([kinds[event.name] for event in rows.events])
        for kind in ("region", "step", "mpi"):
            chosen = rows.where(given == kind)
            if chosen:
                self.parts.append(self._host(kind, chosen))
                if kind == "mpi":
                    done = [operation(event.name or "") for event in chosen.events]
                    self.parts[-1].words["operation"] = words(done, self.known)
                    size = [tensors(a) if d in _ALIKE else NOT_KNOWN for a, d in zip(chosen.args, done, strict=True)]
                    self.parts[-1].numbers["bytes"] = numbers(size)

    def _without_steps(self, operators: TimedEvents) -> TimedEvents:
        """Keep the profiler's steps that old profiles have among the operators (PyTorch before 1.12), and return the rest."""
        steps = operators.name.are(lambda name: name.startswith(_STEP))
        if not steps.any():
            return operators
        self.operator_steps.append(self._host("step", operators.where(steps)))
        return operators.where(~steps)

    def _code(self, operators: TimedEvents, functions: TimedEvents) -> None:
        if operators:
            self.code.append(self._host("operator", operators))
        if functions:
            plain = self._once(CodedWords(functions.name.codes, [_plain(word) for word in functions.name.words]))
            part = KinetoPart("function", functions.start, functions.end, _who(functions), {"name": plain})
            module = functions.name.are(lambda name: name.startswith(_MODULE))
            for kind, mask, parts in (("module", module, self.parts), ("function", ~module, self.code)):
                if mask.any():
                    parts.append(replace(part, kind=kind).where(mask))

    def _overhead(self, rows: TimedEvents) -> None:
        self.parts.append(self._host("overhead", rows))

    def _launches(self, operators: TimedEvents) -> None:
        mask = operators.name.are(_COMMUNICATION.__eq__)
        if mask.any():
            rows = operators.where(mask)
            self.launches.append(self._collective(self._host("mpi", rows), [""] * len(rows), rows.args))

    def _waits(self, operators: TimedEvents) -> None:
        if self.operators.wanted:
            mask = operators.name.are(_BLOCKS.match)
            if mask.any():
                self.waits.append(self._host("mpi", operators.where(mask)))

    def _host(self, kind: str, rows: TimedEvents, **more: Times) -> KinetoPart:
        return KinetoPart(kind, rows.start, rows.end, {**_who(rows), **more}, {"name": self._once(rows.name)})


def _who(rows: TimedEvents) -> Numbers:
    return {"process": rows.process, "thread": rows.thread}


def _plain(function: str) -> str:
    """Return what a Python function or a module is called, without the address of what it belongs to, by which no two are alike.

    >>> _plain("<built-in method view of Tensor object at 0x7ce279c5bf20>"), _plain("nn.Module: Linear_3")
    ('<built-in method view of Tensor object>', 'Linear_3')
    """
    named = function.removeprefix(_MODULE)
    return _ADDRESS.sub("", named) if " at 0x" in named else named


def note(name: str) -> str:
    """Return what a range that PyTorch or its user noted is: a step, communication of the host, a region, or nothing.

    >>> note("ProfilerStep#7"), note("gloo:barrier"), note("forward"), note("nccl:all_reduce")
    ('step', 'mpi', 'region', '')
    """
    if name.startswith(_STEP):
        return "step"
    if _ON_HOST.match(name):
        return "mpi"
    return "" if _LAUNCHED.match(name) else "region"


def payload(work: Communication) -> int:
    """Return the bytes of a collective, counted as NCCL's tests do: the larger of what goes in and what comes out.

    >>> payload(DeviceWork(sent=1024, received=8192, dtype="BFloat16"))
    16384
    """
    if work.dtype is None or (work.sent is None and work.received is None):
        return NOT_KNOWN
    dtype = work.dtype.lower()
    size = _SIZES.get(dtype, 1 if dtype.startswith("float8") else 0)
    count = max(whole(work.sent), whole(work.received))
    return count * size if size and 0 <= count < 2**53 else NOT_KNOWN


def tensors(given: Tensors) -> int:
    """Return the bytes of the tensors that an operator was given, `NOT_KNOWN` where their shapes and types are not recorded.

    >>> tensors(Tensors(dims=[[1000], [2, 3]], types=["float", "c10::BFloat16"]))
    4012
    """
    total = 0
    if not isinstance(given.dims, list) or not isinstance(given.types, list) or not given.dims or len(given.dims) != len(given.types):
        return NOT_KNOWN
    for dims, kind in zip(given.dims, given.types, strict=True):
        size = _SIZES.get(str(kind).lower().removeprefix("c10::"), 0)
        if not size or not isinstance(dims, list) or not all(isinstance(d, int) and 0 <= d < 2**40 for d in dims):
            return NOT_KNOWN
        total += math.prod(dims) * size
    return total if total < 2**53 else NOT_KNOWN


def _see(seen: dict[int, tuple[int, int]], rows: TimedEvents) -> None:
    """Widen what was seen of each process, leaving out what lies a day from the rest."""
    if not rows:
        return
    process = rows.process
    near = (process >= 0) & (np.abs(rows.start - np.median(rows.start)) < _NEAR)
    order = np.argsort(process[near], kind="stable")
    process, start, end = (values[near][order] for values in (process, rows.start, rows.end))
    edges = np.flatnonzero(np.diff(process, prepend=-1))
    if len(edges):
        firsts, lasts = np.minimum.reduceat(start, edges), np.maximum.reduceat(end, edges)
        for number, first, last in zip(process[edges].tolist(), firsts.tolist(), lasts.tolist(), strict=True):
            old = seen.get(number, (first, last))
            seen[number] = min(old[0], first), max(old[1], last)
