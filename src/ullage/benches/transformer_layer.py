"""A Transformer layer in each precision over its hidden size (Hopper paper, figure 5)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ullage.benches import engine, llama, products
from ullage.benches.bench import Data, LibraryCase, Prepared, TableLayout, Target, bench
from ullage.benches.linear import TYPES, has_fp8

BATCH, LENGTH = 4, 512
# Table II of the paper: hidden size, feed-forward size, heads. 4096, 5120 and 8192 are Llama's 7B, 13B and 70B.
SHAPES = {
    1024: llama.NetworkShape(1024, 2816, 8),
    2048: llama.NetworkShape(2048, 5632, 16),
    4096: llama.NetworkShape(4096, 11008, 32),
    5120: llama.NetworkShape(5120, 13824, 40),
    8192: llama.NetworkShape(8192, 22016, 64),
}
# Largest distance from double precision (norm over norm): a few roundings of the type; FP8's casts of both operands, layer by layer.
ALLOWED = {"fp32": 1e-4, "fp16": 0.01, "bf16": 0.05, "fp8": 0.2}


@bench(
    "transformer-layer",
    title="Transformer layer by precision and hidden size",
    source="Hopper paper, table II and figure 5 (a picture without numbers)",
    layout=TableLayout(rows=("hidden", "library"), across=("dtype",), plot=("hidden", "time", ("dtype", "library"))),
    needs="torch",
    seconds=40,
)
def cases(target: Target, quick: bool) -> Iterator[LibraryCase]:
    """Time of one layer, forward, on an input of (4, 512, hidden): RMS norms, causal attention, SwiGLU, as Llama has them.

    In plain PyTorch the attention is PyTorch's own; FP8 is in the four products alone, each scaling and casting its input and its
    weight, so that small layers lose by it. By Transformer Engine's `TransformerLayer` too, where it is installed. The
    paper tells in words: FP16 is nearly twice as fast as FP32, FP8 is faster than FP16 from above a hidden size of 4096, and
    does not reach twice FP16 because softmax, activations and attention stay in FP16.
    """
    for hidden in (4096,) if quick else SHAPES:
        if 16 * SHAPES[hidden].layer_weights > target.memory:  # the reference is in double precision
            continue
        for dtype in TYPES:
            if dtype == "fp8" and not has_fp8(target):
                continue
            yield _case(hidden, dtype, "torch", partial(_torch, hidden, dtype))
            if engine.here():
                yield _case(hidden, dtype, "te", partial(_engine, hidden, dtype))


def flops(shape: llama.NetworkShape, batch: int, length: int) -> int:
    """Return the FLOPs of a layer's products, attention counted causal: length × (length + 1) / 2 pairs.

    One token of a hidden size of 2 and a feed-forward of 3: 4 × 4 + 3 × 6 weights, twice each, and one pair of 4 × 2.

    >>> flops(llama.NetworkShape(2, 3, 1), batch=1, length=1)
    76
    """
    return 2 * batch * length * shape.layer_weights + batch * length * (length + 1) // 2 * 4 * shape.hidden


def _case(hidden: int, dtype: str, library: str, prepare: Any) -> LibraryCase:
    return LibraryCase(
        {"hidden": hidden, "library": library, "dtype": dtype},
        prepare,
        ("time", "throughput"),
        needs=(engine.NAME,) if library == "te" else (),
        flops=flops(SHAPES[hidden], BATCH, LENGTH),
    )


def _torch(hidden: int, dtype: str, torch: Any, data: Data) -> Prepared:
    return prepared(torch, SHAPES[hidden], dtype, data, LENGTH)


def prepared(torch: Any, shape: llama.NetworkShape, dtype: str, data: Data, length: int) -> Prepared:
    """Return a layer's call, and the check of its first sequence against double precision."""
    kind = getattr(torch, TYPES[dtype])
    weights, linear = llama.layer_weights(torch, shape, kind), llama.multiplied(torch, dtype)
    values = products.matrix(torch, BATCH * length, shape.hidden, kind, data).view(BATCH, length, shape.hidden)

    def run() -> Any:
        with torch.no_grad():
            return llama.layer(torch, values, weights, shape, linear)

    def wrong() -> str | None:
        truth = llama.layer(torch, values[:1].double(), llama.double(weights), shape, torch.nn.functional.linear)
        return _told(llama.distance(run()[:1], truth), dtype)

    return Prepared(run, wrong)


def _engine(hidden: int, dtype: str, torch: Any, data: Data) -> Prepared:
    """Return Transformer Engine's layer; its weights are its own, so it is checked against itself in single precision."""
    import transformer_engine.pytorch as te

    shape, kind = SHAPES[hidden], getattr(torch, TYPES[dtype])

    def made(kind: Any) -> Any:
        return te.TransformerLayer(
            shape.hidden, shape.feed_forward, shape.heads, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=kind,
            normalization="RMSNorm", activation="swiglu", bias=False, attn_input_format="bshd", self_attn_mask_type="causal",
        )  # fmt: skip

    module = made(kind)
    values = products.matrix(torch, BATCH * LENGTH, hidden, kind, data).view(BATCH, LENGTH, hidden)
    run = engine.called(torch, module, dtype, values)

    def wrong() -> str | None:
        exact = made(torch.float32)
        exact.load_state_dict({name: value for name, value in module.state_dict().items() if "extra_state" not in name}, strict=False)
        return _told(llama.distance(run(), engine.called(torch, exact, "fp32", values.float())().double()), dtype)

    return Prepared(run, wrong)


def _told(distance: float, dtype: str) -> str | None:
    allowed = ALLOWED[dtype]
    return None if distance <= allowed else f"the layer's output is off by {distance:.2g} of its norm, where {allowed:g} is allowed"
