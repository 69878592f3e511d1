"""Who arrives last at collectives by what NCCL itself told, of the recordings of a run, and what that leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.recording import Recording
from ullage.sums.lanes.collectives.matched import machine
from ullage.sums.nccl_arrivals import NcclArrivals, NcclProcess, nccl_arrivals


def nccl_report(recordings: Sequence[Recording]) -> NcclArrivals | None:
    """Return who arrives when, None where NCCL told nothing of collectives of several ranks."""
    found = [
        NcclProcess(_label(recording, number), recording.rank, machine(recording), recording.nccl)
        for number, recording in enumerate(recordings)
        if recording.nccl is not None
    ]
    return nccl_arrivals(found) if found else None


def _label(recording: Recording, number: int) -> str:
    return f"rank {recording.rank}" if recording.rank is not None else f"process {next(iter(recording.processes), number)}"


def nccl_notes(found: NcclArrivals | None) -> list[str]:
    """Return what the arrivals that NCCL told leave out, a sentence each."""
    if found is None:
        return []
    left_out = {
        "of which not all ranks are recorded": found.incomplete,
        "whose number stands for several launches of a CUDA graph": found.repeated,
        "that ranks counted only, past --events": found.counted,
        "that the recorder had no room for": found.lost,
    }
    said = [f"NCCL's own arrivals leave out {_collectives(count)} {why}" for why, count in left_out.items() if count]
    if found.collectives and not found.programs_compared:
        instead = ": see the GPUs'" if found.gpus_compared else ""
        said.append(f"arrivals of programs on different machines are not compared, as their clocks differ{instead}")
    if found.collectives and not found.gpus_compared:
        said.append("when GPUs began collectives is not recorded, and programs run ahead of them: `ullage run --nccl gpu` records both")
    return said


def _collectives(count: int) -> str:
    return f"{count:,} {'collective' if count == 1 else 'collectives'}"
