"""Is the OFU of real training steps the HFU that the ledger predicts?"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.check import Findings, check
from gpu.machine import Machine
from gpu.step import BATCH, CONFIG, LENGTH, METERED, RANK, VARIANTS, Trial, Variant, ledger, trials
from gpu.telemetry import column, exact, mean, watched
from ullage.metrics.mfu import hfu, mfu
from ullage.metrics.ofu import sampled_ofu
from ullage.models.ledger import Ledger

SECONDS, INTERVAL = 5.0, 1.0
WORST = 0.10  # beyond 10 points one of the two is not what we take it for
METER = 0.05  # TorchMeter's seconds are the host's: launching a step costs a few of 1000
BLOCK = 128  # queries and keys that flash-attention takes at once, at most


@check(
    headline="OFU is off HFU by {sampled_error:.1%} sampled, {exact_error:.1%} exact; best HFU {best_hfu:.1%}",
    loaded=True,
    answers={
        "sampled_error": "largest distance of sampled OFU from HFU",
        "exact_error": "largest distance of exact OFU from HFU (–: no cycle counters)",
        "flash": "the most that flash-attention may add to OFU",
        "counter_error": "largest difference of PyTorch's own counter from the ledger's forward pass, FLOPs (–: PyTorch has none)",
        "meter_error": "farthest that TorchMeter's MFU or HFU lies from ours, as a share of it (–: it told none)",
        "best_hfu": "highest HFU reached",
    },
    columns={
        "variant": "how the decoder trains",
        "step_seconds": "of one step, mean",
        "model_flops": "of one step, by the ledger",
        "executed_flops": "the same with what is done again",
        "tensor_active": "mean of GPM's activity",
        "sm_clock": "mean of the samples, Hz",
        "throttle": "clock event reasons that occurred, as NVML's bit mask",
        "mfu": "model FLOPs done, over the time and the peak",
        "hfu": "executed ones",
        "sampled_ofu": "mean of activity × SM clock / tensor clock",
        "exact_ofu": "from the cycle counters",
        "sampled_distance": "sampled OFU - HFU",
        "exact_distance": "exact OFU - HFU",
        "flash": "what flash-attention may add to OFU",
        "meter_mfu": "TorchMeter's MFU over ours, of the same steps",
        "meter_hfu": "TorchMeter's HFU over ours",
    },
)
def model_step(machine: Machine) -> Findings:
    """Is the OFU of real training steps the HFU that the ledger predicts?

    A decoder after Llama's plan (4 layers of Llama 3 8B's width, 4 × 4096 tokens a step, BF16, AdamW, plain PyTorch) trains
    for 5 s each: plainly, with activation checkpoints of both kinds, with LoRA, and forward only. OFU comes from our
    own reader at 1 s, FLOPs from the ledger (causal attention) and CUDA events over the same seconds.

    OFU should lie a little above HFU. Flash-attention's backward pass computes the scores again, 2.5 times the forward products
    where the ledger has 2, and its blocks on the diagonal compute pairs that the causal mask drops: `flash` says how much of
    OFU both can be. Products that do not fill their tiles add to OFU too. PyTorch's own FLOP counter must give the ledger's
    forward pass to the integer (every query with every key, as it counts), and TorchMeter the MFU that CUDA events give.
    """
    train, findings = trials(machine), Findings(_settings())
    errors: list[int] = []
    for variant in VARIANTS:
        with train(variant) as trial:
            found = watched(machine, SECONDS + INTERVAL, INTERVAL)
        findings.rows.append(_row(machine, variant, trial, found))
        if trial.counted is not None:
            errors.append(trial.counted - ledger(variant, attention="full").forward)
    findings.answers = _answers(findings.rows, errors)
    findings.wrong = _wrong(findings.rows, findings.answers)
    return findings


def _settings() -> dict[str, Any]:
    sizes = {name: value for name, value in CONFIG.items() if isinstance(value, int)}
    steps = {"batch": BATCH, "length": LENGTH, "lora_rank": RANK, "metered_steps": METERED}
    return {"dtype": "bfloat16", "seconds": SECONDS, "interval": INTERVAL, **steps, **sizes}


def _row(machine: Machine, variant: Variant, trial: Trial, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one line of the table. The first reading is the begin of the window and otherwise left out: it saw the ramp."""
    booked, chip, samples = ledger(variant), machine.chip, found[1:]
    begin, end = found[0]["time"], found[-1]["time"]
    seconds, peak = end - begin, chip.peak("bf16")
    executed = trial.work.flops_between(begin, end)
    useful = executed * booked.training / booked.executed
    hardware = float(hfu(executed, seconds, 1, peak))
    sampled = float(np.nanmean(sampled_ofu(column(samples, "tensor_active"), column(samples, "sm_clock"), chip.tensor_clock)))
    counted = exact(machine, found)
    return {
        "variant": variant.name,
        "step_seconds": seconds * booked.executed / executed if executed else None,
        "model_flops": booked.training,
        "executed_flops": booked.executed,
        **{name: mean(samples, name) for name in ("tensor_active", "sm_clock")},
        "throttle": int(np.bitwise_or.reduce([int(row.get("throttle", 0)) for row in samples])),
        "mfu": float(mfu(useful, seconds, 1, peak)),
        "hfu": hardware,
        "sampled_ofu": sampled,
        "exact_ofu": counted,
        "sampled_distance": sampled - hardware,
        "exact_distance": None if counted is None else counted - hardware,
        "flash": hardware * _flash(booked) / booked.executed,
        **_metered(trial, booked, peak),
    }


def _flash(booked: Ledger) -> float:
    """Return the FLOPs that flash-attention may do beyond the ledger: scores again in backward, and pairs above the diagonal."""
    by = booked.by("name", "pass_")
    scores = by[("attention.scores", "forward")] if ("attention.scores", "dgrad") in by else 0
    attention = scores + sum(flops for (name, _), flops in by.items() if name in ("attention.scores", "attention.values"))
    return scores + attention * (BLOCK - 1) / (LENGTH + 1)  # LENGTH (LENGTH + BLOCK) / 2 pairs in place of LENGTH (LENGTH + 1) / 2


def _metered(trial: Trial, booked: Ledger, peak: float) -> dict[str, Any]:
    """Return TorchMeter's MFU and HFU over those by the ledger and CUDA events."""
    told, seconds = trial.metered, trial.metered_seconds
    pairs = {"meter_mfu": (told.mfu, mfu(booked.training * METERED, seconds, 1, peak))}
    pairs["meter_hfu"] = (told.hfu, hfu(booked.executed * METERED, seconds, 1, peak))
    return {name: None if theirs is None else theirs / float(ours) for name, (theirs, ours) in pairs.items()}


def _answers(rows: list[dict[str, Any]], errors: list[int]) -> dict[str, Any]:
    return {
        "sampled_error": _farthest(row["sampled_distance"] for row in rows),
        "exact_error": _farthest(row["exact_distance"] for row in rows),
        "flash": max(row["flash"] for row in rows),
        "counter_error": max(errors, key=abs, default=None),
        "meter_error": _farthest(row[name] and row[name] - 1 for row in rows for name in ("meter_mfu", "meter_hfu")),
        "best_hfu": max(row["hfu"] for row in rows),
    }


def _farthest(distances: Any) -> float | None:
    """Return the largest distance of those that are known."""
    return max((abs(distance) for distance in distances if distance is not None), default=None)


def _wrong(rows: list[dict[str, Any]], answers: dict[str, Any]) -> list[str]:
    wrong = [f"HFU of '{row['variant']}' is {row['hfu']:.3f}: the peak or the count is wrong" for row in rows if row["hfu"] > 1]
    for row in rows:
        for kind in ("sampled", "exact"):
            distance = row[f"{kind}_distance"]
            if distance is not None and abs(distance) > WORST:
                wrong.append(f"{kind} OFU of '{row['variant']}' is {row[f'{kind}_ofu']:.3f} where HFU is {row['hfu']:.3f}")
    if answers["counter_error"]:
        wrong.append(f"PyTorch counts {answers['counter_error']:,} FLOPs more in a forward pass than the ledger")
    if (answers["meter_error"] or 0) > METER:
        wrong.append(f"TorchMeter is {answers['meter_error']:.1%} off the ledger over CUDA events")
    return wrong
