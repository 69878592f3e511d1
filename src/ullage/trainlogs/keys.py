"""By which names metrics loggers call what is read here, and a line's JSON object or printed dictionary as flat names."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from ullage.trainlogs.numbers import TERA

# Field of `Step` -> names, folded by `folded`, the best first: a tracker may count its own calls as "_step".
# A name may also stand behind a path: "train/mfu", "metrics.mfu".
ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "step": ("global_step", "step", "iteration", "iter", "train_step", "steps", "optimizer_step"),
    "time": ("timestamp", "time", "wall_time", "datetime", "ts", "created_at"),
    "step_time": (
        "step_time", "step_time_s", "step_time_sec", "step_time_seconds", "iteration_time", "iteration_time_s", "iter_time",
        "time_per_step", "time_per_iteration", "seconds_per_step", "sec_per_step", "train_step_timing_in_s", "timing_s/step",
        "perf/time_per_step", "step_time_ms", "iteration_time_ms", "iter_time_ms", "time_per_iteration_ms",
        "elapsed_time_per_iteration_ms", "dt_ms", "end_to_end(s)",
    ),
    "tokens": ("tokens", "num_tokens", "step_tokens", "tokens_per_step", "tokens_in_step", "total_num_tokens"),
    "tokens_per_second_per_gpu": (
        "tokens_per_second_per_gpu", "tokens_per_sec_per_gpu", "tokens_per_gpu_per_second", "tokens_per_second_per_device",
        "tokens/s/gpu", "tok/s/gpu", "tgs", "tps", "throughput(tps)", "perf/throughput", "device/tokens_per_sec",
    ),
    "samples_per_second": ("samples_per_second", "samples_per_sec", "samples/sec", "train_samples_per_second"),
    "flops_per_gpu": (
        "tflops_per_gpu", "model_tflops_per_gpu", "tflops_per_second_per_gpu", "tflops_per_device", "tflops/gpu", "tflop/s/gpu",
        "tflops/s/gpu", "tflops/device", "tflops", "model_tflops", "flops_per_gpu", "flops_per_sec_per_gpu", "flops_per_second_per_gpu",
        "flops/s/gpu",
    ),
    "mfu": ("mfu", "model_flops_utilization", "mfu(%)", "mfu_percent", "mfu_pct", "mfu_%", "bf16_mfu", "perf/mfu/actor"),
}  # fmt: skip
_MEANING: Final = {name: (field, rank) for field, names in ALIASES.items() for rank, name in enumerate(names)}
_DEEPEST, _MOST, _LONGEST = 4, 5000, 1 << 18
_SPACES: Final = re.compile(r"[\s\-]+")
_NOT_TRAINING: Final = {
    "eval",
    "val",
    "valid",
    "validation",
    "validation_metrics",
    "test",
}  # paths of what was measured beside the training
_OF_ONE_DEVICE: Final = ("device/samples_per_sec", "device/samples_per_second")  # in Megatron-Bridge, beside the whole job's
_FLOPS: Final = 1e6  # no GPU trains at a million FLOP/s, none at a million TFLOP/s


def folded(name: str) -> str:
    """Return a metric's name as it is compared.

    >>> folded("TFLOPS per GPU"), folded("data.MFU")
    ('tflops_per_gpu', 'data/mfu')
    """
    return _SPACES.sub("_", name.strip().lower().replace(".", "/")).removeprefix("_")


@lru_cache(maxsize=4096)
def meaning(name: str) -> tuple[str, int] | None:
    """Return the field that a metric's name means and how far down its list the name stands; None for what is not read.

    >>> meaning("perf/mfu/actor"), meaning("train/tflops_per_gpu"), meaning("loss"), meaning("eval/samples_per_second")
    (('mfu', 7), ('flops_per_gpu', 0), None, None)
    """
    words = folded(name)
    if words.endswith(_OF_ONE_DEVICE):
        return None
    while words not in _MEANING and "/" in words:
        first, _, words = words.partition("/")
        if first in _NOT_TRAINING:
            return None
        words = words.removeprefix("_")
    return _MEANING.get(words)


def scaled(field: str, name: str, value: float) -> float:
    """Return a value under a metric's name in the unit of its field: milliseconds, TFLOP/s and percent are told by the name.

    >>> scaled("step_time", "step_time_ms", 1830.0), scaled("mfu", "mfu(%)", 50.0)
    (1.83, 0.5)
    """
    name = folded(name)
    if field == "step_time":
        return value * 1e-3 if name.endswith("_ms") else value
    if field == "flops_per_gpu":
        return value * TERA if "tflop" in name or value < _FLOPS else value
    if field == "mfu":
        return value * 0.01 if "%" in name or "percent" in name or "pct" in name else value
    return value


def mapping(text: str) -> dict[str, Any] | None:
    """Return the JSON object, or printed Python dictionary, that ends a line, flat: names joined by "/"; None for none.

    >>> mapping('{"step": 3, "data": {"perf/mfu/actor": 0.4}}')
    {'step': 3, 'data/perf/mfu/actor': 0.4}
    >>> mapping("INFO {'loss': 1.5, 'mfu': 0.4}")
    {'loss': 1.5, 'mfu': 0.4}
    """
    start = text.find("{")
    if start < 0 or not text.endswith("}") or len(text) - start > _LONGEST:
        return None
    try:
        read = json.loads(text[start:])
    except (ValueError, RecursionError):
        try:
            read = ast.literal_eval(text[start:])
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None
    if not isinstance(read, Mapping):
        return None
    flat: dict[str, Any] = {}
    for name, value in _flat(read, "", 0):
        if len(flat) >= _MOST:
            break
        flat.setdefault(name, value)
    return flat


def _flat(read: Mapping[Any, Any], before: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in read.items():
        path = f"{before}{name}"[:_MOST]
        if isinstance(value, Mapping):
            if depth < _DEEPEST:
                yield from _flat(value, f"{path}/", depth + 1)
        else:
            yield path, value
