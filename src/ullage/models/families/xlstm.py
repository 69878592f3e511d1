"""xLSTM (7B): matrix memories with gates, and a gated MLP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import embedding, head, mlp
from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.sample import TEXT, Quantity, quantity
from ullage.models.scans import scanned
from ullage.models.work import Work, contraction, matmul

_STACK = "backbone.blocks"


@model(
    *("xLSTMForCausalLM", "xlstm"),
    source="transformers 5.23, models/xlstm; arXiv:2503.13427; verified to the integer against traces",
)
def xlstm(config: Config) -> Iterator[Work]:
    """xLSTM-7B: mLSTM layers with heads of a matrix memory K × V, and a gated MLP of `ffn_proj_factor` times the width.

    A token costs 4KV + 2K FLOPs a head with the memory and its normaliser, which is all that the recurrence needs; within
    whole chunks of Q, 2(K + V) more for each of Q² pairs: the uncertainty. Tokens after the last whole chunk are recurrent.
    """
    layers, width = config.layers("num_hidden_layers", "num_blocks"), config.integer("hidden_size", "embedding_dim")
    yield embedding(module="backbone.embeddings")
    yield from _memory(config, width, layers)
    multiple = config.integer("ffn_round_up_to_multiple_of", default=64)
    inner = multiple * -(-int(width * config.number("ffn_proj_factor", default=2.667)) // multiple)
    modules = ("proj_up_gate", "proj_up", "proj_down")
    if config.word("weight_mode", default="single") == "fused":
        yield matmul("mlp.gate_up", TEXT, width, 2 * inner, layers, stack=_STACK, module="ffn.proj_up_gate_z", to=None)
        yield matmul("mlp.down", TEXT, inner, width, layers, stack=_STACK, module="ffn.proj_down", reads=("mlp.gate_up",))
    else:
        yield from mlp(width, inner, layers, gated=True, stack=_STACK, module="ffn", modules=modules)
    yield head(width, config.integer("vocab_size"))


def whole_chunk_pairs(size: int) -> Quantity:
    """Return the pairs of positions within whole chunks."""
    return quantity(f"pairs within whole chunks of {size}", lambda s: scanned(s) // size * size**2)


def _memory(config: Config, width: int, layers: Sequence[int]) -> Iterator[Work]:
    heads, name, module = config.integer("num_heads"), "linear_attention", "mlstm_layer"
    keys = int(width * config.number("qk_dim_factor", default=0.5))
    values = int(width * config.number("v_dim_factor", default=1.0))
    if config.word("weight_mode", default="single") == "fused":
        parts = {"qkv_opreact": ("qkvo", 2 * keys + 2 * values), "ifgate_preact": ("gates", 2 * heads)}
    else:
        gates = {f"{gate}gate_preact": (f"{gate}_gate", heads) for gate in "if"}
        parts = {"q": ("q", keys), "k": ("k", keys), "v": ("v", values), "ogate_preact": ("gate", values), **gates}
    for path, (what, columns) in parts.items():
        yield matmul(f"{name}.{what}", TEXT, width, columns, layers, stack=_STACK, module=f"{module}.{path}", to=None)
    made = f"{name}.{next(iter(parts.values()))[0]}"
    chunk = whole_chunk_pairs(config.integer("chunk_size", default=64))
    yield contraction(f"{name}.scores", chunk, 2 * keys, layers, stack=_STACK, reads=(made, made), least=0)
    yield contraction(f"{name}.values", chunk, 2 * values, layers, stack=_STACK, reads=(f"{name}.scores", made), least=0)
    yield contraction(f"{name}.state", TEXT, 4 * keys * (values // heads), layers, stack=_STACK, reads=(made, made))
    yield contraction(f"{name}.normaliser", TEXT, 2 * keys, layers, stack=_STACK, reads=(made, made))
    reads = (f"{name}.values", made)
    yield matmul(f"{name}.out", TEXT, values, width, layers, stack=_STACK, module=f"{module}.out_proj", reads=reads)
