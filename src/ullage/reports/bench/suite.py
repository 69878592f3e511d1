"""A suite of microbenchmarks: measured in a process of its own, kept while it goes on, read again; and answers that measure first."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ullage.benches.result import BenchResult, record, restored
from ullage.errors import UllageError, harmless

HINT = "give what `ullage bench --out results.json` wrote"


@dataclass(frozen=True)
class EarlyStop:
    """Why a measurement ended before it was through, in words; `interrupted` is by Ctrl-C."""

    words: str
    interrupted: bool = False


@dataclass(frozen=True, kw_only=True)
class MeasuredAnswer:
    """What an answer says that measures first: how that ended early, if it did, and remarks for people, beside the answer."""

    early_stop: EarlyStop | None = None
    more_remarks: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the measurement was not stopped."""
        return self.early_stop is None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C stopped it."""
        return self.early_stop is not None and self.early_stop.interrupted

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a person is told beside the answer."""
        return (*([self.early_stop.words] if self.early_stop is not None else []), *self.more_remarks)


def chosen_benches(names: Sequence[str]) -> list[str]:
    """Return the names of the benches that are meant; raises UllageError for one that there isn't.

    Where none is named these are all, the quick ones of our own kernels first: a suite that ends early has those.
    """
    from ullage.benches.bench import BENCHES

    if names:
        return list(dict.fromkeys(BENCHES[name].name for name in names))
    return [member.name for member in sorted(BENCHES.values(), key=lambda one: (one.needs != "cuda", one.seconds, one.name))]


def measured_suite(
    names: Sequence[str],
    device: int,
    progress: Callable[[str], None],
    *,
    quick: bool,
    budget: float | None,
    drift: bool = False,
    keep: Path | None = None,
) -> tuple[list[BenchResult], EarlyStop | None]:
    """Return what was measured, and how a suite ended that was stopped (None: it went to its end).

    After Ctrl-C, or when the GPU is lost, these are the benches that had ended. Each that ends is written to `keep` at once, if
    that is a .json file; beside one that is there already, whose results stay until the suite has ended. The kernels run in a
    process of their own: one that hangs costs its own row.
    """
    from ullage.benches.running.apart import suite_apart
    from ullage.benches.running.driver import bindings

    bindings()  # without a driver: said at once, before another process is begun
    results: list[BenchResult] = []
    part = keep if keep is None or not keep.exists() else keep.with_name(f"{keep.name}.part")
    early_stop = None
    try:
        for one in suite_apart(names, index=device, quick=quick, progress=progress, budget=budget, drift=drift):
            results.append(one)
            if keep is not None and part is not None and keep.suffix.lower() == ".json":
                write_results(results, part)
    except (KeyboardInterrupt, UllageError) as error:
        if not results:
            raise
        why = f": {error.problem}" if isinstance(error, UllageError) else ""
        words = f"stopped{why}; {len(results):,} of {len(names):,} microbenchmarks have ended"
        early_stop = EarlyStop(words, interrupted=not why)
    if part is not None and keep is not None and part != keep and part.exists():
        part.replace(keep)
    return results, early_stop


def write_results(results: Sequence[BenchResult], path: Path) -> None:
    """Write results so that `read_results` reads them, in place of what the file holds."""
    from ullage.views.document import document_text
    from ullage.views.files import replace

    replace(path, document_text("bench-results", {"results": [record(result) for result in results]}).encode())


def read_results(path: Path) -> Iterator[BenchResult]:
    """Yield the results of a file that `ullage bench --json` (or --out) or `make gpu` wrote, or of all .json files of a folder."""
    if path.is_dir():
        for each in sorted(path.glob("*.json")):
            yield from read_results(each)
        return
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UllageError(f"{path} can't be read ({error.strerror})", HINT) from error
    except (ValueError, RecursionError) as error:
        raise UllageError(f"{path} is no JSON ({harmless(str(error), 100)})", HINT) from error
    many = document.get("results", [document]) if isinstance(document, dict) else document
    if not isinstance(many, list) or not many:
        raise UllageError(f"{path} holds no results of microbenchmarks", HINT)
    for one in many:
        yield restored(one, str(path))


def check_ceilings_folder() -> None:
    """Refuse, before anything is measured for it, a folder in which no ceilings can be kept."""
    from ullage.gpus.measured import folder

    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return
    except OSError as error:
        problem = f"{harmless(str(place), 200)} can't be written: {error.strerror or error}"
        raise UllageError(problem, "name another folder with ULLAGE_CEILINGS") from error


def keep_ceilings(results: Sequence[BenchResult]) -> str:
    """Keep the measured ceilings of a device and say where. Raises UllageError where there are none, or those of several devices."""
    from ullage.gpus.measured import MEASURE, folder, save
    from ullage.reports.bench.roofline import ceilings

    measured = ceilings(results)
    if measured is None:
        raise UllageError("there is no ceiling among these numbers", f"run `{MEASURE}`")
    kinds = (
        ("bursts", measured.flops, measured.bandwidth),
        ("sustained", measured.sustained_flops, measured.sustained_bandwidth),
    )
    named = [f"{kind}: {', '.join([*flops, *bandwidth])}" for kind, flops, bandwidth in kinds if flops or bandwidth]
    return f"kept the ceilings of {harmless(measured.gpu, 80)} ({'; '.join(named)}) in {save(measured, folder())}"
