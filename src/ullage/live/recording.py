"""Running a program so that it records itself: the pieces put together, for the command and for a bare GPU node.

python3 -m ullage.live FOLDER -- ./a.out        records, and says where; needs NumPy and pyarrow alone
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ullage.cupti.driver import cuda_version
from ullage.cupti.kinds import ALSO, DEFAULT, GRAPHS, ActivityKind
from ullage.cupti.layouts import layouts
from ullage.cupti.library import find
from ullage.cupti.native.build import recorder as built
from ullage.errors import UllageError, harmless
from ullage.live.launch import USUAL_EVENTS, Nccl, RecorderSettings, environment, no_plugin, run

if TYPE_CHECKING:
    from ullage.live.counting import CountingPlan

STALLS = "ULLAGE_STALLS"  # what the recorder reads
Graphs = Literal["nodes", "whole"]


@dataclass(frozen=True)
class Wanted:
    """What is to be recorded: CUDA (by the library `cupti`, None: the one that is found), MPI, PyTorch's waits, NCCL's own
    collectives (their calls, or when GPUs were in them too); activity `kinds`; how
    often what is recorded goes to the file (`flush`, ms); of how many bytes of the host's `events` (None: all; then it is
    summed up); in place of a trace, counters of each kernel (`counting`), or sampled program counters, one every 2**`stalls` cycles
    (0: CUPTI chooses)."""

    cuda: bool = True
    mpi: bool = True
    python: bool = True
    nccl: Nccl = "calls"
    cupti: Path | None = None
    kinds: Sequence[int] = tuple(sorted(DEFAULT))
    flush: int = 1000
    events: int | None = USUAL_EVENTS
    counting: CountingPlan | None = None
    stalls: int | None = None
    flops: bool = False


@dataclass
class Recorded:
    """How a recorded program ended: its exit `code`, and `notes` on what could not be recorded and why. `ready`: it was set to record."""

    code: int
    notes: list[str] = field(default_factory=list)
    ready: bool = True


def kinds(graphs: Graphs = "nodes", also: Iterable[str] = ()) -> tuple[int, ...]:
    """Return the numbers of the activity kinds to ask for: the usual ones, graphs by their nodes or each as a whole, and those named.

    Raises UllageError for a name that is not among those that may be asked for.

    >>> sorted(set(kinds("whole", ["unified-memory"])) - set(kinds()))
    [25, 51]
    """
    return tuple(sorted({int(kind) for kind in (*DEFAULT, *(GRAPHS if graphs == "whole" else ()), *map(_named, also))}))


def _named(name: str) -> ActivityKind:
    word = name.lower().replace("_", "-").replace(" ", "-")
    if word not in ALSO:
        raise UllageError(f"no further kind of activity is called '{harmless(name)}'", "there are " + ", ".join(sorted(ALSO)))
    return ALSO[word]


def record(
    command: Sequence[str], folder: Path, wanted: Wanted, *, strict: bool = False, base: Mapping[str, str] | None = None
) -> Recorded:
    """Run a program to its end, and return its exit code; its recordings lie in `folder`.

    What keeps it from being recorded is noted and the program runs all the same, unless `strict`: then it raises UllageError. Raises
    `launch.NotRun` for a program that can't be run.
    """
    notes: list[str] = []
    given = dict(os.environ if base is None else base)
    ready = True
    try:
        recorder = prepared(folder, wanted, notes, strict=strict)
        if wanted.nccl != "off" and (why := no_plugin(recorder.library, given)):
            notes.append(f"NCCL's own arrivals are not recorded: {why}")
        mpi = wanted.mpi and _can_be_preloaded(recorder.library, notes)
        given = environment(recorder, given, mpi=mpi, python=wanted.python, nccl=wanted.nccl)
    except UllageError as error:
        if strict:
            raise
        ready = False
        notes.append(f"the program ran without being recorded: {error.problem} ({error.hint})")
    return Recorded(run(command, given), notes, ready)


def prepared(folder: Path, wanted: Wanted, notes: list[str], *, strict: bool = False) -> RecorderSettings:
    """Return what a program is to be given; without CUPTI a note is left. Raises UllageError where the recorder can't be built, and with
    `strict` without CUPTI as well."""
    library = built()
    if not wanted.cuda:
        return RecorderSettings(library, folder, flush=wanted.flush, events=wanted.events)
    try:
        cupti = find(wanted.cupti)
        names = layouts(cupti.release).name_offsets(wanted.kinds)
    except UllageError as error:
        if strict:
            raise
        notes.append(f"CUDA is not recorded: {error.problem} ({error.hint})")
        return RecorderSettings(library, folder, flush=wanted.flush, events=wanted.events)
    extra: dict[str, str] = {}
    if wanted.counting is not None:
        from ullage.live.counting import NOT_COUNTED, planned

        try:
            extra = planned(folder, wanted.counting)
        except UllageError as error:
            if strict:
                raise
            notes.append(f"{NOT_COUNTED}: {error.problem} ({error.hint}); the program was traced instead")
    if wanted.stalls is not None:
        extra = {STALLS: str(wanted.stalls)}
    if wanted.flops:
        from ullage.cupti.counters.sass_metrics import METRICS, VARIABLE

        extra = {VARIABLE: ",".join(METRICS)}
    if mismatch := cupti.mismatch():
        notes.append(mismatch)
    return RecorderSettings(
        library, folder, cupti.path, wanted.kinds, names, wanted.flush, wanted.events, cuda_version() is not None, extra
    )


def _can_be_preloaded(library: Path, notes: list[str]) -> bool:
    """Whether the dynamic linker can be given this path: it takes spaces and colons for the end of a name."""
    if not set(" :") & set(str(library)):
        return True
    notes.append(
        f"MPI is not recorded: a library with a space in its path can't be preloaded ({harmless(str(library))}); set XDG_CACHE_HOME"
    )
    return False
