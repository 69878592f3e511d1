"""Does `ullage.gpus` know this GPU, and does it say what the GPU says of itself?"""

from __future__ import annotations

from typing import Any

from gpu.check import Findings, check
from gpu.machine import Machine
from ullage.gpus.chip import Chip

# Memory is sold in 10^9 bytes and partly reserved; a board's default limit is its maker's choice.
LOOSE = {"memory": 0.1, "power": 0.05}


@check(
    headline="{chip}: {agree} facts agree, {differ} differ, {silent} are not told",
    answers={
        "chip": "the chip that the driver's name finds",
        "confidence": "how sure Ullage is of that chip's figures",
        "agree": "facts that the GPU tells and that agree with the chip's entry",
        "differ": "facts that differ",
        "silent": "facts that the GPU does not tell",
    },
    columns={"fact": "what is compared", "told": "by the GPU", "entry": "by `ullage.gpus`", "agrees": "null: not told"},
)
def peaks(machine: Machine) -> Findings:
    """Does `ullage.gpus` know this GPU by its driver's name, and does it say what the GPU says of itself?

    SM count (by CUDA and by NVML's core count), highest SM clock, and compute capability must agree exactly, for peaks
    are computed from them. Memory and power limit are compared loosely, and only noted.
    """
    chip = machine.chip
    findings = Findings(rows=[_compared(fact, told, entry) for fact, told, entry in _facts(machine, chip)])
    for row in findings.rows:
        if row["agrees"] is False:
            text = f"{row['fact']} is {row['told']} by the GPU and {row['entry']} by ullage.gpus"
            (findings.notes if row["fact"] in LOOSE else findings.wrong).append(text)
    verdicts = [row["agrees"] for row in findings.rows]
    findings.answers = {
        "chip": chip.name,
        "confidence": chip.confidence,
        "agree": verdicts.count(True),
        "differ": verdicts.count(False),
        "silent": verdicts.count(None),
    }
    return findings


def _facts(machine: Machine, chip: Chip) -> list[tuple[str, Any, Any]]:
    clock = machine.ask("nvmlDeviceGetMaxClockInfo", machine.handle, machine.nvml.NVML_CLOCK_SM)
    memory = machine.ask("nvmlDeviceGetMemoryInfo", machine.handle)
    limit = machine.ask("nvmlDeviceGetPowerManagementDefaultLimit", machine.handle)
    return [
        ("SMs by CUDA", machine.sms_by_cuda, chip.sms),
        ("SMs by NVML", machine.sms_by_nvml, chip.sms),
        ("highest SM clock", None if clock is None else clock * 1e6, chip.sm_clock),
        ("compute capability", machine.compute_capability, chip.compute_capability),
        ("memory", None if memory is None else memory.total, chip.memory),
        ("power", None if limit is None else limit / 1000, chip.power),
    ]


def _compared(fact: str, told: Any, entry: Any) -> dict[str, Any]:
    if told is None or entry is None:
        agrees = None
    elif fact in LOOSE:
        agrees = abs(told / entry - 1) <= LOOSE[fact]
    else:
        agrees = told == entry
    return {"fact": fact, "told": told, "entry": entry, "agrees": agrees}
