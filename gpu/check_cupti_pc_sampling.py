"""How does this GPU sample program counters: which order of calls, which counts, which names?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from gpu import apart
from gpu.check import Findings, NotMeasured, check
from gpu.cupti_pc_program import PERIOD
from gpu.cupti_tools import library, settings, understood
from gpu.evidence import MOST
from gpu.machine import Machine

LIMIT = 25.0  # seconds for one stage: it needs a few
STEADY = 0.25  # by what share samples of the same work may differ from one range to the next
MODES = ("continuous", "serialized")
COLUMNS = {
    "stage": "calls: ranges of the same work, read one by one; or a mode",
    "range": "from 1",
    "total": "samples as CUPTI counts them, added by this range's readings",
    "dropped": "of them, in the hardware",
    "other": "of them, in kernels of the driver's own",
    "base": "samples of reasons as they are",
    "latency": "samples of reasons whose name ends in _not_issued",
    "readings": "that it took",
}


@check(
    headline="{reasons} stall reasons, samples of reasons {counted:.3f} of the total",
    answers={
        "order": "whether CUPTI takes Enable, GetStallReasons, SetConfigurationAttribute in that order",
        "reasons": "stall reasons that it knows",
        "cycles": "from one sample to the next, as set",
        "subset": "samples of _not_issued reasons over those of the reasons themselves",
        "counted": "samples of reasons, without _not_issued, over CUPTI's total less dropped and other ones",
        "counted_all": "the same with _not_issued added",
        "cumulative": "whether CUPTI's total goes on from one reading to the next",
        "functions": "names of the functions that were sampled, with their first and last offset",
        "own_function": "whether a function that is not inlined has a name of its own",
        "correlations": "launches that samples name in serialized mode",
        "with_code": "samples' places whose machine code was kept, as a share",
        "problems": "what failed on the way",
    },
    columns=COLUMNS,
)
def cupti_pc_sampling(machine: Machine) -> Findings:
    """How does this GPU sample program counters: which order of calls, which counts, which names?

    A kernel waits for memory and calls a function that is not inlined; NVRTC compiles it, or the driver from PTX where that is missing.
    Four ranges of the same work are read one by one. If CUPTI's total grows by the same each time it counts what a reading brings, else
    what all brought. If the reasons that end in _not_issued count part of what the reasons themselves count, those alone make the total.
    Then both modes by Ullage's own sampler. The samples of the last one that worked are kept, with the kernel's machine code.
    """
    found = library(machine)
    findings = Findings({**settings(found), "period": PERIOD})
    with tempfile.TemporaryDirectory() as folder:
        told = {stage: _stage(machine, stage, Path(folder), findings) for stage in ("calls", *MODES)}
    if not any("ranges" in facts or "rows" in facts for facts in told.values()):
        raise NotMeasured("; ".join([*findings.notes, *findings.wrong]) or "nothing was sampled")
    compiled = next(facts for facts in told.values() if facts.get("compiled_by"))
    findings.settings["compiled_by"] = compiled["compiled_by"]
    if compiled.get("without_nvrtc"):
        findings.notes.append(f"the kernel has no line numbers, as the driver compiled it: {compiled['without_nvrtc']}")
    findings.rows = _rows(told)
    findings.answers = _answers(told)
    findings.wrong += [f"'{mode}' sampled nothing" for mode in MODES if told[mode].get("rows") == 0]
    return findings


def _stage(machine: Machine, stage: str, folder: Path, findings: Findings) -> dict[str, Any]:
    """Run a stage, keep its samples, and return what it told."""
    place = folder / stage
    place.mkdir()
    told = apart.told(machine, apart.asked("cupti_pc_program", stage, place), LIMIT)
    understood(f"'{stage}'", told, findings)
    findings.notes += [f"{stage}: {problem}" for problem in told.facts.get("problems", [])]
    if told.facts.get("rows"):
        small = [path for path in place.rglob("*") if path.is_file() and path.stat().st_size <= MOST]
        findings.recordings = {f"cupti_pc_{path.relative_to(place)}": path.read_bytes() for path in small}
    return told.facts


def _rows(told: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [{"stage": "calls", "range": number, **one} for number, one in enumerate(told["calls"].get("ranges", []), 1)]
    rows += [{"stage": mode, "range": 1, **told[mode], **told[mode]["facts"]} for mode in MODES if "facts" in told[mode]]
    return [{name: row.get(name) for name in COLUMNS} for row in rows]


def _answers(told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the answers from what the stages told."""
    calls, by_mode = told["calls"], [told[mode] for mode in MODES]
    ranges = calls.get("ranges", [])
    functions = {name: places for one in by_mode for name, places in one.get("functions", {}).items()}
    base, latency = (sum(one[name] for one in ranges) for name in ("base", "latency"))
    expected = sum(one["total"] - one["dropped"] - one["other"] for one in ranges)
    rows = sum(one.get("rows", 0) for one in by_mode)
    return {
        "order": bool(calls.get("reasons")),
        "reasons": len(calls.get("reasons", [])),
        "cycles": calls.get("cycles"),
        "subset": latency / base if base else None,
        "counted": base / expected if expected else None,
        "counted_all": (base + latency) / expected if expected else None,
        "cumulative": _cumulative([one["total"] for one in ranges]),
        "functions": "; ".join(f"{name}: {first} to {last}" for name, (first, last) in sorted(functions.items())),
        "own_function": any("called" in name for name in functions),
        "correlations": told["serialized"].get("correlations"),
        "with_code": sum(one.get("with_code", 0) for one in by_mode) / rows if rows else None,
        "problems": sum(len(one.get("problems", [])) for one in by_mode),
    }


def _cumulative(totals: list[int]) -> bool | None:
    """Return whether what readings of the same work count goes on from one to the next; None where they tell neither.

    >>> _cumulative([100, 98, 103]), _cumulative([100, 200, 300]), _cumulative([100, 10, 900]), _cumulative([])
    (False, True, None, None)
    """
    if len(totals) < 2 or not totals[0]:
        return None
    ratios = [total / totals[0] for total in totals]
    for goes_on in (False, True):
        if all(abs(ratio / (number if goes_on else 1) - 1) <= STEADY for number, ratio in enumerate(ratios, 1)):
            return goes_on
    return None
