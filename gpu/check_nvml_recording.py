"""What does NVML really say to the live reader, call by call, idle and under load?"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from gpu.check import Findings, NotMeasured, check
from gpu.machine import WITHOUT_LOAD, Machine, installed
from gpu.recording import Recorder, packed
from gpu.telemetry import mean, parquet, rows
from ullage.field import FIELDS, Flag
from ullage.problems import Problems
from ullage.sources.nvml import watch
from ullage.sources.source import Options

if TYPE_CHECKING:
    import pyarrow as pa

PHASES = (("idle", 8.0), ("loaded", 8.0), ("idle again", 4.0))
INTERVAL = 0.5
SIZE = 8192
SHOWN = ("tensor_active", "sm_active", "sm_clock", "power")
RECORDING, SAMPLES = "nvml_recording.calls.json.gz", "nvml_recording.samples.parquet"


@check(
    headline="{readings} readings of {seconds_per_reading:.4f} s; not told: {silent}",
    answers={
        "readings": "moments at which all GPUs were read",
        "calls": "calls of NVML functions",
        "seconds_per_reading": "what the calls of one reading take, s",
        "told": "fields that the measured GPU tells",
        "silent": "fields that it does not tell",
        "refused": "functions that were refused, with the driver's reason",
    },
    columns={
        "phase": "idle, loaded, idle again",
        "readings": "how many",
        "tensor_active": "mean",
        "sm_active": "mean",
        "sm_clock": "mean, Hz",
        "power": "mean, W",
    },
)
def nvml_recording(machine: Machine) -> Findings:
    """What does NVML really say to the live reader, call by call, idle and under load?

    The reader (`ullage.sources.nvml`) watches at 0.5 s for 8 s idle, 8 s under a BF16 GEMM and 4 s idle again. Every
    call and reply is kept, and what the reader made of them: tests replay the calls and must get the same samples.
    """
    if not installed("pyarrow"):
        raise NotMeasured("no pyarrow, which the reader's samples are kept with")
    import pyarrow as pa

    recorder, problems = Recorder(machine.nvml, machine.clock), Problems()
    phases = [(name, seconds) for name, seconds in PHASES if machine.load or name == "idle"]
    tables = {name: _watched(machine, recorder, problems, name, seconds) for name, seconds in phases}
    sessions = [{"phase": name, "watch": seconds, "interval": INTERVAL} for name, seconds in phases]
    told = {name: rows(table, machine.pseudonym) for name, table in tables.items()}
    every = [row for found in told.values() for row in found]
    findings = Findings({"interval": INTERVAL, "seconds": sum(s for _, s in phases), "gemm": SIZE if machine.load else None})
    findings.settings["load"] = machine.load_name
    findings.rows = [{"phase": n, "readings": len(found), **{name: mean(found, name) for name in SHOWN}} for n, found in told.items()]
    findings.answers = {**_answers(recorder, len(every)), **_fields(every)}
    findings.notes = problems.lines() + ([] if machine.load else [WITHOUT_LOAD])
    findings.wrong = _wrong(findings.rows, every, phases)
    findings.recordings = {
        RECORDING: packed(recorder.recording(gpu=machine.name, host="node", sessions=sessions)),
        SAMPLES: parquet(pa.concat_tables(tables.values(), promote_options="default").unify_dictionaries()),
    }
    return findings


def _watched(machine: Machine, recorder: Recorder, problems: Problems, phase: str, seconds: float) -> pa.Table:
    import pyarrow as pa

    load = machine.load(SIZE) if phase == "loaded" and machine.load else nullcontext()
    with load:
        options = Options(watch=seconds, interval=INTERVAL)
        return pa.Table.from_batches(list(watch(recorder, options, problems, "node", recorder.clock, machine.sleep)))


def _answers(recorder: Recorder, readings: int) -> dict[str, Any]:
    refused = {f"{call[0]}: {recorder.errors[str(call[2]['error'])]}" for call in recorder.calls if "error" in call[2]}
    took = sum(call[3] for call in recorder.calls) / 1e6
    calls = {"readings": readings, "calls": len(recorder.calls), "seconds_per_reading": took / readings if readings else None}
    return {**calls, "refused": "; ".join(sorted(refused))}


def _fields(every: list[dict[str, Any]]) -> dict[str, str]:
    told = [name for name in FIELDS if any(name in row for row in every)]
    return {"told": " ".join(told), "silent": " ".join(name for name in FIELDS if name not in told)}


def _wrong(phases: list[dict[str, Any]], every: list[dict[str, Any]], wanted: list[tuple[str, float]]) -> list[str]:
    expected = sum(int(seconds / INTERVAL + 1e-9) for _, seconds in wanted)
    wrong = [] if len(every) == expected else [f"{len(every)} readings instead of {expected}"]
    doubtful = Flag.SENTINEL | Flag.IMPOSSIBLE | Flag.UNIT_GUESSED
    flagged = sum(bool(row["flags"] & doubtful) for row in every)
    if flagged:
        wrong.append(f"{flagged} readings hold sentinels, impossible values or another unit than NVML documents")
    active = {row["phase"]: row["tensor_active"] for row in phases}
    if active.get("loaded") is not None and active["loaded"] <= (active["idle"] or 0.0):
        wrong.append("tensor activity under a GEMM is not above that of the idle GPU")
    return wrong
