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
    return [f"the recorder itself: {who}{held} ({share}{_calls(cost)}), {beside}"]


def _calls(cost: RecorderCost) -> str:
    """Return what a call of MPI cost, where there were enough to speak of."""
    if not cost.calls or not cost.per_call:
        return ""
    return f"; {cost.calls:,} call{'s' * (cost.calls != 1)} of MPI, {cost.per_call:,} ns each, which counts as no useful time"
