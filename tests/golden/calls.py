"""The package's functions as a program calls them: what their answers hold, a line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ullage

LLAMA = "configs/llama-8b-pretrain.json"
CALLS: dict[str, Callable[[], Any]] = {
    "peak('H100 SXM', 'bf16')": lambda: ullage.peak("H100 SXM", "bf16"),
    "peak('B200', 'fp8')": lambda: ullage.peak("B200", "fp8"),
    "gpu('H200').sms": lambda: ullage.gpu("H200").sms,
    "gpu('A100').memory": lambda: ullage.gpu("A100").memory,
    "fleet('fleet').ofu": lambda: ullage.fleet("fleet").ofu,
    "fleet('fleet').gpu_hours": lambda: ullage.fleet("fleet").gpu_hours,
    "fleet('moving', by='host'): each host": lambda: [(g.key, g.ofu, g.gpu_hours) for g in ullage.fleet("moving", by="host").groups],
    "read_samples('scrapes'): rows": lambda: sum(batch.num_rows for batch in ullage.read_samples("scrapes")),
    "flops(LLAMA, batch=8, seq=4096).training": lambda: ullage.flops(LLAMA, batch=8, seq=4096).training,
    "flops(LLAMA, step_time=21, gpus=128, gpu='H100 SXM').mfu": lambda: ullage.flops(LLAMA, step_time=21, gpus=128, gpu="H100 SXM").mfu,
    "gemm(1000, 777, 512, gpu='H100 SXM').wave_efficiency": lambda: ullage.gemm(1000, 777, 512, gpu="H100 SXM").wave_efficiency,
    "audit_mfu(LLAMA, reported=0.54, ofu=0.26).convention": lambda: ullage.audit_mfu(LLAMA, reported=0.54, ofu=0.26).convention,
    "waterfall(of the job): factors": lambda: [
        (step.name, step.factor.value) for step in ullage.waterfall("job/telemetry.parquet", "job/traces", "job/config.json").chain.steps
    ],
    "read_trace('training').tree('ai')": lambda: dict(ullage.read_trace("training").tree("ai").items()),
    "read_trace('case-4').rows('rank', 'talp')": lambda: ullage.read_trace("case-4").rows("rank", "talp"),
}


def answers_of_calls() -> Iterator[str]:
    """Yield a line for each call: what was called and what came."""
    for words, call in CALLS.items():
        yield f"{words} = {_shown(call())}"


def _shown(value: Any) -> str:
    """Return a value as Python writes it, numbers to twelve digits: their last ones depend on the order of additions."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value)
