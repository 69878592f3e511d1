"""The FLOPs of a step, per call: a compiled configuration beside verl's counter on the same configurations and lengths.

    python benchmarks/flops_call.py [--quick] [--json FILE]

Each estimate takes the lengths of the step's sequences, drawn anew for every call. verl is `pip install --no-deps verl` (its
counter needs torch and transformers); without it our own figures stand alone. The two do not count alike: verl counts the
embedding as a product (see docs/audit-counter.md), so their ratio is printed beside the times.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from measure import Figure, Figures, parser
from ullage.models.config import Config
from ullage.models.formula import compiled

QWEN2 = {
    "model_type": "qwen2",
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "num_experts_per_tok": 8,
    "num_experts": 128,
}
GEMMA3 = {
    "model_type": "gemma3_text",
    "vocab_size": 262208,
    "hidden_size": 3840,
    "intermediate_size": 15360,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
}
CONFIGS = {"Qwen2.5-7B": QWEN2, "Qwen3-30B-A3B": QWEN3_MOE, "Gemma3-12B": GEMMA3}
TARGET = 20e-6  # seconds a call
SEQUENCES = 32


def main() -> None:
    asked = parser(__doc__).parse_args()
    figures = Figures(asked.json)
    calls = 200 if asked.quick else 5000
    draw = random.Random(0)
    steps = [[draw.randint(1, 8192) for _ in range(SEQUENCES)] for _ in range(calls)]
    for name, config in CONFIGS.items():
        ours = compiled(Config(config)).per_lengths()
        peer = verl(config)
        ours(steps[0])
        mine = per_call(ours, steps)
        beside = {"verl": per_call(peer, steps) * 1e6} if peer else {}
        target = None if asked.quick else TARGET * 1e6
        figures.add(Figure(f"{name}, {SEQUENCES} sequences a step", mine * 1e6, "us", beside, target))
        start = time.perf_counter()
        compiled(Config(config)).per_lengths()
        figures.add(Figure(f"{name}, compiled once", (time.perf_counter() - start) * 1e3, "ms"))
        if peer:
            print(f"  verl counts {peer(steps[0]) / ours(steps[0]):.3f} of ours")


def per_call(count: Callable[[Sequence[int]], Any], steps: Sequence[Sequence[int]]) -> float:
    """Return the median of five rounds: seconds a call."""
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for lengths in steps:
            count(lengths)
        rounds.append((time.perf_counter() - start) / len(steps))
    return statistics.median(rounds)


def verl(config: dict[str, Any]) -> Callable[[Sequence[int]], float] | None:
    """Return verl's estimate of a step's FLOPs, or None where it is not installed."""
    try:
        from verl.utils import flops_counter
    except ImportError as error:
        print(f"verl is not measured: {error}")
        return None
    defaults = {"layer_types": None, **config}
    flops_counter.get_torch_device = lambda: SimpleNamespace(get_device_name=lambda: "NVIDIA H100 80GB HBM3")  # its peak, without a GPU
    counter = flops_counter.FlopsCounter(SimpleNamespace(**defaults))
    return lambda lengths: counter.estimate_flops(list(lengths), 1)[0] * 1e12


if __name__ == "__main__":
    main()
