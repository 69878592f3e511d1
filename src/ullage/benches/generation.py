"""Tokens a second that a Llama-like model generates (Hopper paper, table XII)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ullage.benches import llama, products
from ullage.benches.bench import Data, Figure, LibraryCase, Prepared, TableLayout, Target, bench
from ullage.benches.linear import TYPES, has_fp8
from ullage.benches.llama import Network, NetworkShape

BATCH, PROMPT, GENERATED = 8, 128, 128
# OpenLLaMA 3B and Llama 2 7B and 13B: their config.json (hidden_size, intermediate_size, num_attention_heads, num_hidden_layers).
MODELS = {
    "llama-3B": NetworkShape(3200, 8640, 32, 26, 32000),
    "llama-2-7B": NetworkShape(4096, 11008, 32, 32, 32000),
    "llama-2-13B": NetworkShape(5120, 13824, 40, 40, 32000),
}
_TABLE: dict[str, dict[str, tuple[float | None, ...]]] = {  # tokens/s: FP32, BF16, FP8; None: out of memory, or no FP8 there
    "NVIDIA GeForce RTX 4090": {"llama-3B": (414.08, 425.19, 429.31), "llama-2-7B": (None, 350.69, None)},
    "NVIDIA A100-PCIE-40GB": {
        "llama-3B": (674.50, 670.87, None),
        "llama-2-7B": (400.88, 548.57, None),
        "llama-2-13B": (None, 420.81, None),
    },
    "NVIDIA H800 PCIe": {
        "llama-3B": (679.45, 624.10, 537.92),
        "llama-2-7B": (568.91, 502.65, 474.42),
        "llama-2-13B": (357.57, 399.38, 356.11),
    },
}
FIGURES = [
    Figure(gpu, {"model": model, "dtype": dtype}, "rate", value)
    for gpu, rows in _TABLE.items()
    for model, values in rows.items()
    for dtype, value in zip(("fp32", "bf16", "fp8"), values, strict=True)
    if value is not None
]
# Largest distance of the logits from double precision (norm over norm), after four tokens through the cache.
ALLOWED = {"fp32": 1e-3, "bf16": 0.15, "fp8": 0.5}
_CHECKED = 4


@bench(
    "generation",
    title="Generation of text",
    source="Hopper paper, table XII",
    layout=TableLayout(rows=("model",), across=("dtype",)),
    figures=FIGURES,
    needs="torch",
    seconds=60,
)
def cases(target: Target, quick: bool) -> Iterator[LibraryCase]:
    """Tokens per second of a Llama-like model in plain PyTorch, with a cache of keys and values, 8 sequences at a time.

    Weights are random: time does not ask what they are. 128 tokens a sequence are generated after 128 of a prompt, greedily, each step
    one CUDA graph; the prompt itself is not run, and only generated tokens count. The paper counts prompt and generated
    tokens over the whole time, of requests of up to 128 and 128 tokens, launched one by one through Transformer
    Engine's modules: its figures are of another kind, and lower. "B/s" is what a step must read at least (weights in their
    type, the cache up to the middle of the run) over its time: beside the GPU's bandwidth it says how memory-bound generation is;
    `ullage metrics generation_bound` is that bound. In FP8 the weights are cast once, inputs at each product; the
    rest stays in BF16.
    """
    for name in ("llama-3B",) if quick else MODELS:
        for dtype in ("bf16", "fp8") if quick else ("fp32", "bf16", "fp8"):
            if 2 * weight_bytes(MODELS[name], "fp32" if dtype == "fp32" else "bf16") > target.memory or (
                dtype == "fp8" and not has_fp8(target)
            ):
                continue
            yield _case(name, dtype)


def weight_bytes(shape: NetworkShape, dtype: str) -> int:
    """Return the bytes of weights that a step reads.

    >>> weight_bytes(NetworkShape(4096, 11008, 32, 32, 32000), "bf16")
    13214154752
    """
    return shape.weights * {"fp32": 4, "bf16": 2, "fp8": 1}[dtype]


def cache_bytes(shape: NetworkShape, dtype: str, batch: int, length: float) -> int:
    """Return the bytes of keys and values that a step reads at a length; with FP8 weights the cache is in BF16.

    >>> cache_bytes(NetworkShape(4096, 11008, 32, 32, 32000), "bf16", batch=8, length=192)
    805306368
    """
    return round(2 * shape.layers * batch * length * shape.hidden * (4 if dtype == "fp32" else 2))


def _case(name: str, dtype: str) -> LibraryCase:
    shape = MODELS[name]
    read = weight_bytes(shape, dtype) + cache_bytes(shape, dtype, BATCH, PROMPT + GENERATED / 2)
    return LibraryCase(
        {"model": name, "dtype": dtype},
        partial(_prepare, name, dtype),
        ("rate", "bandwidth"),
        items=BATCH * GENERATED,
        bytes=GENERATED * read,
    )


def _prepare(name: str, dtype: str, torch: Any, data: Data) -> Prepared:  # noqa: ARG001 - weights of zeros would make no text
    return prepared(torch, MODELS[name], dtype, PROMPT, GENERATED)


def prepared(torch: Any, shape: NetworkShape, dtype: str, prompt: int, generated: int) -> Prepared:
    """Return a run of `generated` steps after a prompt of that length, and the check of its logits against double precision."""
    linear = with_kept_weights(torch) if dtype == "fp8" else llama.multiplied(torch, dtype)
    network = Network(torch, shape, BATCH, prompt + generated, getattr(torch, TYPES[dtype]), linear)
    step = _replayed(torch, network)

    def run() -> None:
        network.begin(at=prompt)
        for _ in range(generated):
            step()

    return Prepared(run, lambda: wrong_logits(torch, network, ALLOWED[dtype]))


def with_kept_weights(torch: Any) -> llama.Linear:
    """Return how layers multiply in FP8 when they generate: a weight is cast when it is first met, the input each time."""
    kept: dict[int, tuple[Any, Any]] = {}

    def run(values: Any, weight: Any) -> Any:
        if id(weight) not in kept:
            largest = products.absmax(torch, weight)
            kept[id(weight)] = products.cast(torch, weight, largest), largest
        rows = values.reshape(-1, values.shape[-1])
        full = torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[0] % 16))  # the tensor cores take 16 rows at least
        most, (cast, largest) = products.absmax(torch, rows), kept[id(weight)]
        made = products.scaled(torch, products.cast(torch, full, most), cast, (most, largest), values.dtype)
        return made[: rows.shape[0]].view(*values.shape[:-1], weight.shape[0])

    return run


def _replayed(torch: Any, network: Network) -> Any:
    """Return a step as a CUDA graph, so that the host's launches don't bound it; on a CPU the step itself."""

    def step() -> Any:
        with torch.no_grad():
            return network.step()

    if products.device(torch) == "cpu":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    network.begin(at=0)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def wrong_logits(torch: Any, network: Network, allowed: float) -> str | None:
    """Say how far the logits of a first and a last sequence are off after some tokens through the cache; None where they are right."""
    tokens = torch.randint(0, network.shape.vocabulary, (network.batch, _CHECKED), device=products.device(torch))

    def fed(place: int) -> Any:
        network.begin(tokens[:, place : place + 1], at=place)
        return network.step()

    with torch.no_grad():
        logits = [fed(place) for place in range(_CHECKED)][-1]
        ends = [0, network.batch - 1]
        off = llama.distance(logits[ends], network.reference(tokens[ends]))
    return None if off <= allowed else f"the logits are off by {off:.2g} of their norm, where {allowed:g} is allowed"
