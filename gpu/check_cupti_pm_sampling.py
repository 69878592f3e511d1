"""Do the device's counters, sampled beside a job, say what NVML's GPM says, and do they disturb it?"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

from gpu import apart
from gpu.check import Findings, NotMeasured, check
from gpu.cupti_pm_program import KERNELS, SECONDS
from gpu.cupti_recording import seen
from gpu.cupti_tools import library, recordings, settings, understood
from gpu.evidence import MOST
from gpu.machine import Machine
from ullage.cupti.kinds import ActivityKind

LIMIT = 60.0  # seconds for the product's program: 12 s of windows, the ways that are tried, and PyTorch's import
WINDOWS = ("before", "gpm", "pm", "both", "after")
APART = 0.03  # of a share, what PM sampling and GPM may differ by: their windows are the same product, not the same seconds
TOLD = ("tensor_active", "sm_active", "dram_active", "sm_clock")
COLUMNS = {
    "window": "what was sampled in it",
    "clock": "SM clock by NVML, mean, Hz",
    "clock_low": "the lowest reading, Hz",
    "burst": "mean time of a burst of the load, s: of products by CUDA events, of a kernel of ours by the host's clock",
    **{f"pm_{name}": "by PM sampling" for name in TOLD},
    **{f"gpm_{name}": "by GPM" for name in TOLD},
    "samples": "that came by PM sampling",
    "length": "median time of a sample, ns",
    "gap": "longest time between two samples, ns",
    "overflow": "whether the hardware's buffer ran over",
    "untimed": "samples that came without a time",
    "keep": "which samples the hardware keeps when its buffer runs over",
    "buffer": "bytes of the hardware's buffer",
    "problem": "what was refused",
}


@check(
    headline="tensor activity {tensor_apart:+.3f} from GPM's, clock {clock_shift:+.2%}; {traced:.1%} of kernels traced meanwhile",
    answers={
        "tensor_apart": "tensor activity by PM sampling minus that by GPM",
        "sm_apart": "SM activity, the same",
        "dram_apart": "memory activity, the same",
        "clock_apart": "SM clock, the same, as a share",
        "clock_shift": "SM clock by NVML while sampling over that before and after, minus 1: whether sampling locks clocks",
        "burst_shift": "time of a burst while sampling over that before and after, minus 1",
        "gpm_beside": "whether GPM still tells tensor activity while PM sampling is on",
        "samples": "that came a second, of 1,000",
        "traced": "kernels recorded while PM sampling is on, of those launched, as a share",
        "traced_samples": "samples that came meanwhile",
        "ways": "what came by each way to keep and to read samples",
    },
    columns=COLUMNS,
)
def cupti_pm_sampling(machine: Machine) -> Findings:
    """Do the device's counters, sampled beside a job, say what NVML's GPM says, and do they disturb it?

    A BF16 product by PyTorch runs steadily, or a tensor-core kernel of ours where that is missing. Windows of two seconds: nothing
    sampled, GPM, PM sampling every millisecond (the device's counters, in one pass), both at once, nothing again. NVML tells the clock
    all along, and it is told how long bursts of the load take. The hardware's buffer is 512 MiB, or the half of it and so on where that
    is refused; then other sizes and both ways to keep samples are tried, with the memory that they take. Then kernels are recorded by
    activity while PM sampling is on, as a live run with counters would do it. Some samples are kept as an image.

    The clock that NVML tells is not the one that SMs have under products (`sm_clock`): it is told beside the counted one, and not judged.
    """
    found = library(machine)
    findings = Findings({**settings(found), "seconds": SECONDS})
    with tempfile.TemporaryDirectory() as folder:
        told = apart.told(machine, apart.asked("cupti_pm_program", "product", folder), LIMIT)
        traced = apart.told(machine, apart.asked("cupti_pm_program", "traced", folder), LIMIT / 2)
        kernels = sum(len(seen(path).of(ActivityKind.CONCURRENT_KERNEL)) for path in recordings(Path(folder)))
        _keep(Path(folder), findings)
    for one, name in ((told, "the load's program"), (traced, "the traced program")):
        understood(name, one, findings)
    findings.settings["load"] = told.facts.get("load")
    findings.notes += [told.facts["image_problem"]] if told.facts.get("image_problem") else []
    findings.rows = [_row(name, told.facts[name]) for name in WINDOWS if name in told.facts]
    if not any(row["samples"] for row in findings.rows):
        raise NotMeasured("; ".join([*findings.notes, *findings.wrong, *_problems(findings.rows)]) or "no sample came")
    findings.answers = _answers(findings.rows, traced.facts.get("traced") or {}, kernels) | {
        "ways": ". ".join(_way_words(way) for way in told.facts.get("ways") or []) or None
    }
    findings.notes += _problems(findings.rows)
    findings.wrong += _wrong(findings.answers)
    return findings


def _row(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    problem = "; ".join(facts[key] for key in ("pm_problem", "gpm_problem") if facts.get(key))
    problem += " (another profiler has the GPU's counters)" if facts.get("taken") else ""
    return {column: facts.get(column) for column in COLUMNS} | {"window": name, "problem": problem}


def _problems(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['window']}: {row['problem']}" for row in rows if row["problem"]]


def _keep(folder: Path, findings: Findings) -> None:
    image = folder / "pm.image"
    if image.exists():
        packed = gzip.compress(image.read_bytes(), mtime=0)
        if len(packed) <= MOST:
            findings.recordings["cupti_pm_sampling.image.gz"] = packed
            findings.recordings["cupti_pm_sampling.image.json"] = image.with_suffix(".json").read_bytes()


def _answers(rows: list[dict[str, Any]], traced: dict[str, Any], kernels: int) -> dict[str, Any]:
    """Return the answers from the windows, what the traced program told, and the kernels that were recorded of it."""
    one = {row["window"]: row for row in rows}
    sampling, by_gpm, both = (one.get(name, {}) for name in ("pm", "gpm", "both"))
    clock = _difference(sampling, by_gpm, "sm_clock")
    samples = sampling.get("samples")
    return {
        "tensor_apart": _difference(sampling, by_gpm, "tensor_active"),
        "sm_apart": _difference(sampling, by_gpm, "sm_active"),
        "dram_apart": _difference(sampling, by_gpm, "dram_active"),
        "clock_apart": None if clock is None else clock / by_gpm["gpm_sm_clock"],
        "clock_shift": _shift(one, "clock"),
        "burst_shift": _shift(one, "burst"),
        "gpm_beside": both.get("gpm_tensor_active") is not None,
        "samples": None if samples is None else samples / SECONDS,
        "traced": kernels / KERNELS if traced else None,
        "traced_samples": traced.get("samples"),
    }


def _way_words(way: dict[str, Any]) -> str:
    """Return in words what came by one way to keep and to read samples.

    >>> _way_words({"keep": "oldest", "buffer": 8 << 20, "every": 0.02, "seconds": 0.5, "during": 92, "after": 0, "overflow": 0.178})
    'oldest in 8 MiB, read every 20 ms: 92 of 500 came, 0 after the end; it ran over after 0.18 s'
    >>> _way_words({"keep": "latest", "buffer": 8 << 20, "every": 0, "seconds": 0.5, "refused": "x answered 999"})
    'latest in 8 MiB, read at the end: x answered 999'
    """
    when = f"every {1000 * way['every']:.0f} ms" if way["every"] else "at the end"
    how = f"{way['keep']} in {way['buffer'] / 2**20:g} MiB, read {when}"
    if "refused" in way:
        return f"{how}: {way['refused']}"
    came = f"{way['during']} of {1000 * way['seconds']:.0f} came, {way['after']} after the end"
    more = [f"it ran over after {way['overflow']:.2f} s"] if "overflow" in way else []
    grew = {one: way.get(f"{one}_grew", 0) / 2**20 for one in ("gpu", "host")}
    more += [f"{mebibytes:+.0f} MiB of the {one}'s memory" for one, mebibytes in grew.items() if mebibytes]
    return "; ".join([f"{how}: {came}", *more, *([way["settings_refused"]] if "settings_refused" in way else [])])


def _difference(sampling: dict[str, Any], by_gpm: dict[str, Any], name: str) -> float | None:
    one, other = sampling.get(f"pm_{name}"), by_gpm.get(f"gpm_{name}")
    return None if one is None or other is None else float(one) - float(other)


def _shift(rows: dict[str, dict[str, Any]], name: str) -> float | None:
    """Return by what share a value while sampling lies beyond its mean before and after; None where one is missing.

    >>> round(_shift({"before": {"clock": 1.9}, "pm": {"clock": 1.5}, "after": {"clock": 2.1}}, "clock"), 2)
    -0.25
    """
    before, sampling, after = (rows.get(window, {}).get(name) for window in ("before", "pm", "after"))
    return None if not before or not sampling or not after else float(2 * sampling / (before + after) - 1)


def _wrong(found: dict[str, Any]) -> list[str]:
    names = {"tensor_apart": "tensor activity", "sm_apart": "SM activity", "dram_apart": "memory activity"}
    return [f"{words} by PM sampling is {found[name]:+.3f} off GPM's" for name, words in names.items() if abs(found[name] or 0.0) > APART]
