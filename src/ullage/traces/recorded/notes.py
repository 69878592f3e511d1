"""What a recording says at its end: whose it was, its devices, what was lost, what CUPTI refused, what recording cost."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np

from ullage.cupti.chunks import NOBODY, OPENMP
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.results import explain
from ullage.errors import harmless
from ullage.recording import Device, Process, RecorderCost, Recording, Summed, SummedCalls
from ullage.traces.recorded.facts import RecordingFacts
from ullage.traces.recorded.host import calls_recorded, is_mpi
from ullage.traces.recorded.rows import RecordingReading, Records, column

_KERNELS = (ActivityKind.CONCURRENT_KERNEL, ActivityKind.KERNEL)
CUPTI = "cupti"  # how the name of a call of CUPTI begins
NOT_SHARED = "rings"  # the problem of a recorder that could not have them in a file
MOST_SAID = 5  # problems of one recording that are told one by one


def who(told: RecordingFacts, recording: Recording, rank: int | None) -> None:
    """Fill in host, rank and ranks of a recording; the file's own rank comes before the one that was asked for."""
    own = told.whole("rank")
    recording.host = told.text("host") or recording.host
    recording.boot = told.text("boot")
    recording.rank = own if own is not None else rank
    recording.ranks = told.whole("ranks")
    for told_device in told.objects("devices"):
        number = told_device.get("index")
        if type(number) is int and number >= 0:
            recording.devices[number] = _device(told_device, recording.host)


def _device(said: dict[str, Any], host: str) -> Device:
    name, uuid, bus, sms = (said.get(key) for key in ("name", "uuid", "bus", "sms"))
    place = f"{host}/{bus.lower()}" if host and isinstance(bus, str) and bus else ""
    return Device(
        name if isinstance(name, str) else "",
        (_uuid(uuid) if isinstance(uuid, str) else "") or place,
        sms if type(sms) is int and sms > 0 else None,
    )


def _uuid(text: str) -> str:
    """Return a UUID as NVML writes it, "" for one that is all zeros.

    >>> _uuid("9AF1-02"), _uuid("MIG-07"), _uuid("0000-00")
    ('GPU-9af1-02', 'MIG-07', '')
    """
    if not text.strip("0- "):
        return ""
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text.lower()}"


def devices(reading: RecordingReading, records: Records) -> None:
    """Fill in the recording's devices from CUPTI's own records of them; a MIG instance is a device of its own."""
    names = reading.words(records["name"])
    for at, record in enumerate(records):
        mig = "migUuid.bytes" in (records.dtype.names or ()) and bool(record["isMigEnabled"])
        raw = bytes(record["migUuid.bytes" if mig else "uuid.bytes"].astype("u1"))
        number = int(record["id"])
        old = reading.recording.devices.get(number, Device())
        code = int(names.codes[at])
        told = f"{'MIG' if mig else 'GPU'}-{_dashed(raw)}" if any(raw) else old.key
        sms = int(record["numMultiprocessors"])
        able = "{}.{}".format(*(column(records, f"computeCapability{part}")[at] for part in ("Major", "Minor")))
        name = names.table[code] if code >= 0 else old.name
        reading.recording.devices[number] = Device(name, told, sms or old.sms, "" if "-" in able else able)


def _dashed(raw: bytes) -> str:
    """Return 16 bytes as a UUID is written."""
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_WHY_NOT_COUNTED = {
    errno.ENOENT: "this machine's processors have no counters that a program can read, as is usual in virtual machines",
    errno.EACCES: "the system doesn't let programs count; sysctl kernel.perf_event_paranoid=2 allows it",
    errno.EPERM: "the system, or the container, doesn't let programs count; sysctl kernel.perf_event_paranoid=2 and a seccomp profile with "
    "perf_event_open allow it",
    errno.ENOSYS: "this kernel, or the container, has no perf_event_open",
}


def _openmp_unseen(told: RecordingFacts) -> list[str]:
    """Return that a program's OpenMP doesn't tell when its threads wait."""
    said = told.info.get("openmp")
    if not isinstance(said, dict) or said.get("told") is not False:
        return []
    runtime = harmless(str(said.get("runtime", "")), 60)
    hint = "; LLVM's libomp, preloaded, stands in for it and does" if runtime.startswith("libgomp") else ""
    return [
        f"no waits of OpenMP's threads: the program's runtime ({runtime}) told of none by OMPT, so of each process the main thread alone "
        f"is seen, and its waiting for others counts as useful{hint}"
    ]


def useful_counts(told: RecordingFacts) -> dict[str, int]:
    """Return what was counted in useful time, as in `Recording.counters`; {} where nothing was."""
    said = told.info.get("useful")
    counts = {name: _count(said, name) for name in ("instructions", "cycles", "time")} if isinstance(said, dict) else {}
    if not counts.get("cycles") or not counts["time"]:
        return {}
    return {"instructions": counts["instructions"], "cycles": counts["cycles"], "useful_time": counts["time"], "sampled": 1}


def not_counted(reading: RecordingReading) -> list[str]:
    """Return why a process' instructions are not known."""
    said = reading.told.info.get("useful")
    if not isinstance(said, dict) or reading.recording.counters:
        return []
    code = said.get("refused")
    if type(code) is int and 0 < code < 2**31:
        why = _WHY_NOT_COUNTED.get(code, f"perf_event_open: {os.strerror(code)}")
    elif reading.device_calls:
        why = "useful time was not told from calls of CUDA while the program ran; ULLAGE_CALLBACKS=runtime,driver does"
    else:
        return []
    return [f"no instructions and no IPC: {why}"]


def _counted(reading: RecordingReading) -> dict[str, int]:
    """Return what was counted, where calls of CUDA are not among it."""
    said = reading.told.info.get("useful")
    apart = isinstance(said, dict) and "driver" in str(said.get("apart", ""))
    return {} if reading.device_calls and not apart else useful_counts(reading.told)


def people(reading: RecordingReading) -> None:
    """Fill in the one process: how long it lived, its name, and what the recording prefers."""
    recording = reading.recording
    program = reading.told.info.get("program")
    name = program[0] if isinstance(program, list) and program and isinstance(program[0], str) else ""
    recording.processes[reading.process] = Process(recording.rank, name.rsplit("/", 1)[-1], recording.host)
    if reading.collectives != reading.messages:
        recording.prefers = "ai" if reading.collectives else "talp"
    tell_clocks(reading)
    if counted := _counted(reading):
        recording.counters[reading.process] = counted
    if reading.clock.since_1970 is not None:
        recording.clock = "utc"
    if reading.began is not None or reading.ended is not None:
        recording.clocked(reading.process, reading.began, reading.ended)
    if (life := reading.life()) is not None and life[0] < life[1]:
        recording.saw(reading.process, *life)


def tell_clocks(reading: RecordingReading) -> None:
    """Fill in of which threads it is known when they were on no processor."""
    if clocked := reading.told.clocked_threads:
        reading.recording.cpu_clocks[reading.process] = clocked
        reading.recording.own_thread[reading.process] = reading.told.own_thread or reading.process


def losses(reading: RecordingReading) -> None:
    """Count what was lost: by CUPTI, by the recorder, and by the reader."""
    told, problems, end = reading.told, reading.problems, reading.told.end or {}
    problems.drop("activity records that CUPTI dropped", told.dropped, reading.place)
    reading.recording.untimed += told.dropped
    for kind, count in sorted(reading.unknown.items()):
        problems.drop(f"records of kind {kind}, which no header of this release has", count, reading.place)
    problems.drop("records that the recorder had no room for", _count(end, "lost"), reading.place)
    problems.repair("calls and regions that count as the region around them, as there were too many", _count(end, "folded"), reading.place)
    problems.drop("bytes that could not be written to the recording", _count(end, "lost_bytes"), reading.place)
    reading.recording.untimed += _count(end, "lost_bytes") > 0
    problems.drop("chunks without sense", told.nonsense, reading.place)
    if reading.clock.changed:
        problems.note(
            f"the clock of {harmless(reading.recording.host) or 'the machine'} was set by {reading.clock.changed / 1e9:,.3g} s meanwhile"
        )


def remarks(reading: RecordingReading) -> list[str]:
    """Return what the numbers of a recording rest on, a sentence each: what CUPTI refused, and what nobody recorded."""
    found = refusals(reading.told)
    answers = reading.told.answers()
    if answers and not any(answers.get(kind) == 0 for kind in (*_KERNELS, ActivityKind.GRAPH_TRACE)):
        found.append("no kernels were recorded: there is no device tree")
    if not calls_recorded(reading):
        found.append("of the hosts' calls only the waits were recorded: launches and copies count as useful time")
    elif not reading.seen & {"api", "mpi", "parallel"}:
        useful = "but that off the CPU " if reading.told.clocked_threads else ""
        found.append(f"neither CUDA nor MPI was recorded on the host: all of its time {useful}counts as useful")
    waits = system_waits(reading.told, reading.clock.last - reading.clock.first)
    return [*found, *helpers(reading), *_openmp_unseen(reading.told), *not_counted(reading), *waits]


WORTH_A_WORD = 0.01  # of a process' life


def system_waits(told: RecordingFacts, lasted: int) -> list[str]:
    """Return what the system says of a process' first thread: how long it could have run, and how long it waited for disks."""
    waits = {"a processor, which others had": _count(told.info, "processor_wait_ns"), "disks": _count(told.info, "disk_wait_ns")}
    said = [f"{took / 1e9:.3g} s for {what}" for what, took in waits.items() if took and took >= WORTH_A_WORD * lasted]
    return [f"its first thread waited {', and '.join(said)}"] * bool(said)


def helpers(reading: RecordingReading) -> list[str]:
    """Return which threads communicated beside the one whose calls of MPI are the process'."""
    longest = sorted(reading.helpers.items(), key=lambda one: -one[1])
    if not longest:
        return []
    named = ", ".join(f"{thread} for {took / 1e9:.3g} s" for thread, took in longest[:MOST_SAID])
    more = f" and {len(longest) - MOST_SAID:,} more" if len(longest) > MOST_SAID else ""
    who = "the first thread" if reading.told.main else "the thread that called MPI_Init"
    rank = f"rank {reading.recording.rank}" if reading.recording.rank is not None else f"process {reading.process}"
    beside = f"{len(longest):,} thread{'s were' if len(longest) > 1 else ' was'} in MPI beside {who} ({named}{more})"
    return [f"{rank}: {beside}; that is not the process' communication"]


def refusals(told: RecordingFacts) -> list[str]:
    """Return what could not be recorded and why."""
    failed = [p for p in told.objects("problems") if p.get("what") != NOT_SHARED]
    said = [_why(str(p.get("what", "a call of CUPTI")), p.get("code"), p.get("detail")) for p in failed] + _not_shared(told)
    kinds: dict[int, list[str]] = {}
    for kind, answer in told.answers().items():
        kinds.setdefault(answer, []).append(_kind(kind))
    said += [_why(f"{CUPTI} recording {', '.join(names[:MOST_SAID])}", answer) for answer, names in kinds.items() if answer]
    said = list(dict.fromkeys(said))
    return said[:MOST_SAID] + ([f"{len(said) - MOST_SAID:,} more calls of CUPTI failed"] if len(said) > MOST_SAID else [])


def _not_shared(told: RecordingFacts) -> list[str]:
    """Return why a killed process left nothing but what it had flushed; of one that ended by itself that is nobody's loss."""
    codes = [p.get("code") for p in told.objects("problems") if p.get("what") == NOT_SHARED] if told.end is None else []
    why = f" ({os.strerror(codes[0])})" if codes and type(codes[0]) is int and 0 < codes[0] < 2**31 else ""
    lost = f"its rings could not be kept beside the recording{why}: what a killed process had not flushed is lost"
    return [lost] * bool(codes)


def _kind(number: int) -> str:
    return ActivityKind(number).name.lower().replace("_", " ") if number in set(ActivityKind) else f"kind {number}"


def _why(what: str, code: object, detail: object = "") -> str:
    """Return why something failed: a call of CUPTI by its answer, anything else by what the system says."""
    more = f" ({harmless(detail)})" if isinstance(detail, str) and detail else ""
    if type(code) is not int or not 0 < code < 2**31:
        return f"{harmless(what)} failed{more}"
    if not what.startswith(CUPTI) and " " not in what:  # a call of the system
        return f"{harmless(what)}: {os.strerror(code)}{more}"
    answer = explain(code)
    return f"{harmless(what)}: {answer.meaning} ({answer.name}){more}" + (f"; {answer.hint}" if answer.hint else "")


def cost(reading: RecordingReading) -> RecorderCost | None:
    """Return what recording cost, None where the recording doesn't say."""
    end, info = reading.told.end or {}, reading.told.info
    per_call = _count(info, "mpi_within_ns") + _count(info, "mpi_between_ns")
    summed_call = _count(info, "sum_within_ns") + _count(info, "sum_between_ns")
    counted = summed_calls(reading.told)
    calls, in_calls = reading.calls + counted, reading.calls * per_call + counted * summed_call
    held = _count(end, "callback_ns") + reading.held + in_calls + reading.waits * per_call + reading.regions * _count(info, "region_ns")
    held += _count(end, "cpu_readings") * _count(info, "cpu_clock_ns")
    per_call = round(in_calls / calls) if calls else per_call
    beside = _count(end, "flush_ns") + _count(end, "writer_ns")
    lasted = reading.clock.last - reading.clock.first
    if lasted <= 0 or not (held or beside):
        return None
    return RecorderCost(held, beside, lasted, calls, per_call, _count(end, "memory_peak"), device_memory(info))


def device_memory(info: dict[str, Any]) -> int:
    """Return how many bytes of each context's device CUPTI's buffers take at most; 0 where these are in the host's memory or not told."""
    said = info.get("device_buffers")
    return _count(said, "bytes") * _count(said, "limit") if isinstance(said, dict) and said.get("pinned") is not True else 0


def summed_calls(told: RecordingFacts) -> int:
    """Return how many calls of MPI were only counted."""
    rows = [one.rows for one in told.sums.values()]
    calls = [some[(some["call"] != 0) & (some["call"] != NOBODY)] for some in rows]
    return sum(int(row["count"]) for some in calls for row in some if not told.is_openmp(int(row["call"])))


def summed(reading: RecordingReading) -> Summed | None:
    """Return since when sums stand in the place of events, None where they never do."""
    told = reading.told
    if not told.summed:
        return None
    since = reading.clock.host(np.array(list(told.summed.values()), np.uint64)).tolist()
    return Summed(dict(zip(told.summed, since, strict=True)), reading.stretch, _summed_by_name(told))


def _summed_by_name(told: RecordingFacts) -> dict[str, SummedCalls]:
    """Return the calls that were counted of the process' own."""
    rows: dict[str, list[Records]] = {}
    for one in told.sums.values():
        for row in one.rows[(one.rows["call"] != 0) & (one.rows["call"] != NOBODY) & (one.rows["count"] > 0)]:
            name = told.host_names.get(int(row["call"]), "")
            if not name.startswith(OPENMP) and (told.own_thread in (None, one.thread) or not is_mpi(name)):
                rows.setdefault(name, []).append(row)
    return {
        name: SummedCalls(
            sum(int(row["count"]) for row in some),
            max(int(row["longest"]) for row in some),
            tuple(int(count) for count in np.sum([row["histogram"] for row in some], axis=0)),
        )
        for name, some in rows.items()
    }


def _count(said: dict[str, Any], key: str) -> int:
    value = said.get(key)
    return value if type(value) is int and 0 < value < 2**63 else 0
