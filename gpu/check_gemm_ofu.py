"""How far is OFU, plain and adjusted, from the MFU of random products in each precision?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu.check import Findings, check
from gpu.machine import Machine, described, versions
from gpu.pytorch import needed_torch
from ullage.benches.gemm_ofu import measure
from ullage.benches.gemm_ofu_plan import LARGEST
from ullage.benches.gemm_ofu_record import Observation, read
from ullage.benches.running.session import opened
from ullage.errors import UllageError
from ullage.reports.gemms import ofu as reports

COUNT, SECONDS, SEED = 60, 0.25, 0  # random products in each precision, and how long each is watched
RECORDING, TABLE = "gemm_ofu.jsonl", "gemm_ofu.txt"
WORST = 0.05  # adjusted OFU is to tell MFU: the paper's mean error is half a point on Hopper, one and a bit on Blackwell
EVERY = 20  # products between two lines of progress
Harness = Callable[[Path, float, Callable[[str], None]], str]


@check(
    headline="{products} products: off MFU by {worst_error:.2%}, adjusted {worst_error_adjusted:.2%}; "
    "{least_within_5_adjusted:.0%} within 5",
    loaded=True,
    answers={
        "products": "random products observed",
        "failed": "products without a number",
        "worst_error": "largest mean absolute error of OFU among the precisions",
        "worst_error_adjusted": "the same of adjusted OFU",
        "least_within_5_adjusted": "smallest share of products whose adjusted OFU is within 5 points of MFU",
        "without_adjusted": "random products whose kernel's name does not tell its padding",
    },
    columns={
        "gpu": "measured, or the OFU paper's",
        "precision": "of the operands",
        "clock": "sampled, or by the cycle counters (exact)",
        "adjusted": "whether the padding is taken out",
        "products": "how many",
        "error": "mean absolute error against MFU",
        "bias": "mean error: above 0, OFU is too high",
        "within_2": "share of products within 2 points",
        "within_5": "within 5 points",
    },
)
def gemm_ofu(machine: Machine) -> Findings:
    """How far is OFU, plain and adjusted, from the MFU of random products in each precision?

    Table II of the OFU paper by `ullage bench gemm-ofu`: 60 random products a precision, sustained for a quarter of a second each
    under NVML's sampler, and squares for figures 1 and 3. Every product is written down as soon as it was seen; the next start goes
    on with the rest. `ullage bench gemm-ofu --from results/<gpu>/gemm_ofu.jsonl` shows the whole table and draws the figures.
    """
    assert machine.room is not None, "the runner gives every check room"
    run, room = _harness(machine), machine.room
    path = room.folder / RECORDING
    if path.exists() and not _goes_on(path, machine):
        path.replace(path.with_name(f".{path.name}.old"))
    path.parent.mkdir(parents=True, exist_ok=True)
    early = run(path, room.left / 60, _seldom(room.say))
    recording = read(path)
    report = reports.gemm_ofu(recording)
    findings = Findings({"products_a_precision": COUNT, "seconds": SECONDS, "seed": SEED, "largest": LARGEST})
    random = [seen for seen in recording.observations if seen.gemm.kind == "random"]
    findings.rows, findings.unfinished = [_row(row) for row in report.rows], early
    findings.answers = _answers(findings.rows, random, report)
    findings.notes = [*report.notes, *_failures(recording.observations)]
    findings.wrong = list(_wrong(findings.rows, recording.observations))
    findings.recordings = {RECORDING: path.read_bytes()}
    findings.add_table(TABLE, lambda: _text(report))
    return findings


def _text(report: reports.GemmOfuReport) -> str:
    return str(report)


def _harness(machine: Machine) -> Harness:
    """Return what measures products into a file for some minutes and says why it ended early; the machine may bring its own.

    Raises NotMeasured without PyTorch.
    """
    own: Harness | None = getattr(machine, "harness", None)
    if own is not None:
        return own
    needed_torch(machine)
    return _on_gpu


def _on_gpu(path: Path, minutes: float, progress: Callable[[str], None]) -> str:
    with opened(0) as session:
        return measure(session, path, count=COUNT, seconds=SECONDS, seed=SEED, minutes=minutes, progress=progress)


def _goes_on(path: Path, machine: Machine) -> bool:
    """Whether a recording is of this very GPU, driver and PyTorch, with these settings: its errors are those of one board."""
    try:
        found = read(path)
    except UllageError:
        return False
    about = described(machine)
    same = all(found.machine.get(name) == about[name] for name in ("uuid_hash", "driver"))
    settings = {"seconds": SECONDS, "seed": SEED, "largest": LARGEST}
    alike = all(found.settings.get(name) == value for name, value in settings.items())
    return same and alike and found.machine.get("torch") == versions()["torch"]


def _seldom(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return what passes on one line of progress in `EVERY`."""
    count = iter(range(10**9))
    return lambda line: say(f"    {line}") if next(count) % EVERY == 0 else None


def _row(row: reports.EstimatorRow) -> dict[str, Any]:
    told = row.statistics
    return {
        "gpu": f"{row.gpu} (paper)" if row.paper else row.gpu,
        "precision": row.precision,
        "clock": None if row.exact is None else "exact" if row.exact else "sampled",
        "adjusted": row.adjusted,
        "products": told.count,
        "error": told.error,
        "bias": told.bias,
        "within_2": told.within_2,
        "within_5": told.within_5,
    }


def _answers(rows: list[dict[str, Any]], random: list[Observation], report: reports.GemmOfuReport) -> dict[str, Any]:
    """Return the answers, by the cycle counters where the driver tells them."""
    mine = [row for row in rows if row["clock"] == ("exact" if report.exact else "sampled")]
    plain, adjusted = ([row for row in mine if row["adjusted"] is which] for which in (False, True))
    known = sum(1 for one in report.estimates if one.gemm.kind == "random" and one.cover is not None)
    return {
        "products": sum(1 for seen in random if not seen.problem),
        "failed": sum(1 for seen in random if seen.problem),
        "worst_error": max((row["error"] for row in plain), default=None),
        "worst_error_adjusted": max((row["error"] for row in adjusted), default=None),
        "least_within_5_adjusted": min((row["within_5"] for row in adjusted), default=None),
        "without_adjusted": sum(1 for seen in random if not seen.problem) - known,
    }


def _failures(seen: tuple[Observation, ...]) -> Iterator[str]:
    problems = Counter((one.gemm.precision, one.problem) for one in seen if one.problem)
    yield from (f"{precision}, {count} products: {problem}" for (precision, problem), count in problems.most_common(10))


def _wrong(rows: list[dict[str, Any]], seen: tuple[Observation, ...]) -> Iterator[str]:
    for row in rows:
        if row["adjusted"] and row["clock"] is not None and row["error"] > WORST:
            yield f"adjusted OFU ({row['clock']}) is {100 * row['error']:.1f} points off MFU in {row['precision']}"
    bad = [one.gemm.words for one in seen if "result is wrong" in one.problem]
    if bad:
        yield f"{len(bad)} products gave a wrong result, the first {bad[0]}"
    if not any(not one.problem for one in seen):
        yield "no product was observed"
