"""What recording cost a run, in a sentence: of the process that it cost most."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.recording import RecorderCost, Recording


def recorder_cost(recordings: Iterable[Recording]) -> list[str]:
    """Return what the recorder took of the process whose share it was largest, nothing where no recording says."""
    found = [(r.cost, r.rank) for r in recordings if r.cost is not None]
    if not found:
        return []
    cost, rank = max(found, key=lambda one: one[0].held / one[0].lasted)
    who = "" if len(found) == 1 else f"{'a process' if rank is None else f'rank {rank}'}, the most of {len(found):,}: "
    share = f"{100 * cost.held / cost.lasted:.2g} % of the run"
    held, beside = f"{cost.held / 1e9:.3g} s in the program's threads", f"{cost.beside / 1e9:.3g} s in its own"
    return [f"the recorder itself: {who}{held} ({share}{_calls(cost)}), {beside}{_memory(cost)}"]


def events_until(recordings: Iterable[Recording]) -> list[str]:
    """Return until when events were recorded, where sums followed, and what that leaves open."""
    found = [(r, r.summed) for r in recordings if r.summed is not None]
    if not found:
        return []
    first, summed = min(found, key=lambda one: one[1].first - _begin(one[0]))
    several = f", and of {len(found) - 1:,} more later" if len(found) > 1 else ""
    who = "the process" if first.rank is None else f"rank {first.rank}"
    until = f"{max(summed.first - _begin(first), 0) / 1e9:.3g} s"
    said = [
        f"events of {who} are recorded until {until}{several}, then its time is summed up: the trees are exact; who came last, occurrences "
        "of regions, calls of MPI in them and the timeline are of the events (`ullage run --events MB` records more)"
    ]
    if any(len(summed.since) > 1 for _, summed in found):
        longest = max(summed.stretch for _, summed in found if len(summed.since) > 1)
        said.append(f"what several threads of a process did at once is known to within {longest / 1e9:.3g} s, where it is summed up")
    return said


def _begin(recording: Recording) -> int:
    """Return when a recording's run begins."""
    begun = [start for start, _ in recording.mpi_clock.values() if start is not None]
    return min(begun or [first for first, _ in recording.extent.values()], default=0)


def _memory(cost: RecorderCost) -> str:
    """Return what CUPTI's buffers took, and what of the GPU's memory they may take."""
    took = f"; CUPTI's buffers took {cost.memory / 1e6:,.3g} MB of memory" if cost.memory else ""
    on_device = f" and at most {cost.device_memory / 1e6:,.3g} MB of each context's GPU" if took and cost.device_memory else ""
    return took + on_device


def _calls(cost: RecorderCost) -> str:
    """Return what a call of MPI cost, where there were enough to speak of."""
    if not cost.calls or not cost.per_call:
        return ""
    return f"; {cost.calls:,} call{'s' * (cost.calls != 1)} of MPI, {cost.per_call:,} ns each, which counts as no useful time"
