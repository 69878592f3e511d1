"""How full the devices of a traced run were, and who held a training job up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ullage.profiles import Tables
    from ullage.recording import Mode
    from ullage.reports.trace.stragglers import StragglerReport
    from ullage.reports.trace.trace import TraceReport
    from ullage.sums.lanes.states import Host


def trace(
    files: str | Sequence[str],
    *,
    mode: Mode | None = None,
    region: str | None = None,
    window: str = "first-last",
    ranks: Mapping[str, int] | None = None,
    price: float | None = None,
    link: float | None = None,
    strict: bool = False,
    limit: int = 64 * 2**30,
    workers: int | None = None,
    host: Host = "busiest",
    tables: Tables = "common",
    what_if: bool = False,
    progress: Callable[[str], None] | None = None,
) -> TraceReport:
    """Return the host and device trees of one run; the command `ullage trace` prints the same.

    `files` is a trace, a folder or a glob of them (a file a rank), or several. `mode` counts collectives as work ("talp") or
    apart ("ai"); None takes what suits the source. `window` is "first-last", "steps" or "A:B" seconds; `ranks` gives ranks by
    file name to files that don't tell; `price` is money per GPU-hour; `link` is the rate of a GPU's link one way, in B/s, for collectives
    that are not within a host; `strict` refuses damaged files; `limit` is the most
    bytes that a file may unpack to; `workers` how many files are read side by side; `host` makes a
    process' host lane its busiest thread in the GPU's interface, or the "union" of all; `tables` are of the "common" time of all ranks
    (files of unequal times are read twice) or of all that was "recorded", within the
    `region`; `what_if` replays the run with other durations.
    Raises UllageError for what the user can fix.
    """
    from ullage.errors import UllageError
    from ullage.profiles import ProfileRequest, profile
    from ullage.reports.trace.trace import TraceQuestion
    from ullage.reports.trace.trace import trace as answer
    from ullage.sums.lanes.window import parse
    from ullage.traces.trace import TraceOptions

    if what_if and region is not None:
        raise UllageError("a region can't be replayed: what it waits for lies outside too", "cut a part of the run with --window instead")
    chosen = parse(window)
    options = TraceOptions(strict=strict, limit=limit, progress=progress or (lambda _: None))
    asked = ProfileRequest(chosen, dict(ranks or {}), options, workers, host, tables, what_if, region)
    read = profile(files if isinstance(files, str) else list(files), asked)
    return answer(read, read.window, TraceQuestion(mode, region, price, link))


def stragglers(files: str | Sequence[str], *, peers: Literal["step", "job"] = "step") -> StragglerReport:
    """Return which ranks, stages and operations hold a training job up; `ullage trace stragglers` prints the same.

    `files` are operations of a job's ranks (`ullage.traces.operations`); `peers` are what an operation is compared with: its type on all
    ranks within the `step`, or in all steps of the `job`. Raises UllageError for what the user can fix.
    """
    from ullage.errors import UllageError
    from ullage.named import found
    from ullage.problems import Problems
    from ullage.reports.trace.stragglers import straggler_report
    from ullage.traces.operations import read_operations
    from ullage.traces.trace import recognised

    problems = Problems()
    paths = found([files] if isinstance(files, str) else files)
    for path in paths:
        trace, file = recognised(path)
        if trace.name != "operations":
            raise UllageError(
                f"{file.name} is a trace of another kind ({trace.name}): it does not tell the operations of pipeline stages",
                "give operations by rank and stage as Parquet; ullage trace says which rank comes late, and what a token costs each",
            )
    return straggler_report(read_operations(paths, problems), peers=peers, problems=problems)
