"""MiniMax-Text-01: lightning attention and softmax attention by turns, with experts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import embedding
from ullage.models.config import Config
from ullage.models.decoders import output
from ullage.models.mixture import Mixture, choice, grouped_attention, parted
from ullage.models.model import model
from ullage.models.sample import TEXT
from ullage.models.scans import STEPS, block_pairs, state_reads, state_updates
from ullage.models.work import Work, contraction, matmul

_STACK = "model.layers"


@model(
    *(
        "MiniMaxForCausalLM",
        "MiniMaxForSequenceClassification",
        "minimax",
        "MiniMaxText01ForCausalLM",
        "minimax_text_01",
        "MiniMaxM1ForCausalLM",
        "minimax_m1",
    ),
    source="transformers 5.23, models/minimax; arXiv:2501.08313; verified to the integer against traces",
)
def minimax(config: Config) -> Iterator[Work]:
    """MiniMax-Text-01: lightning attention in layers of `layer_types` "linear_attention", softmax attention in the others.

    Lightning attention works by blocks of Q: 4·n·d FLOPs for each of the Q² pairs within a block, 4·n·d² a token with the
    state, which is all that the recurrence needs; the former are the uncertainty.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("layer_types", len(layers), {"full_attention", "linear_attention"})
    older = config.integers("attn_type_list", len(layers))
    if kinds is None and older is not None:
        kinds = ["full_attention" if kind else "linear_attention" for kind in older]
    attending, recurrent = parted(layers, lambda i: kinds[i] == "full_attention" if kinds else i % 2 == 0)
    taken = choice(config, ("num_local_experts", "num_experts"), ("num_experts_per_tok",))
    mixture = Mixture(config.integer("intermediate_size"), *taken)
    yield embedding()
    yield from grouped_attention(config, [(None, attending)])
    yield from lightning(config, width, recurrent)
    yield from mixture.works(width, layers)
    yield from output(config, width, config.integer("vocab_size"))


def lightning(config: Config, width: int, layers: Sequence[int]) -> Iterator[Work]:
    """Yield lightning attention: one projection to queries, keys and values, the scan by blocks, an output gate."""
    heads = config.integer("num_attention_heads")
    dim, block = config.integer("head_dim", default=width // heads), config.integer("block_size", default=256)
    inner, name, qkv = heads * dim, "linear_attention", "linear_attention.qkv"
    place = {"layers": layers, "stack": _STACK}
    yield matmul(qkv, TEXT, width, 3 * inner, module="self_attn.qkv_proj", to=None, **place)  # type: ignore[arg-type]
    scores = f"{name}.scores"
    yield contraction(scores, block_pairs(block), 2 * inner, reads=(qkv, qkv), least=0, **place)  # type: ignore[arg-type]
    yield contraction(f"{name}.values", block_pairs(block), 2 * inner, reads=(scores, qkv), least=0, **place)  # type: ignore[arg-type]
    yield contraction(f"{name}.step", STEPS, 4 * inner * dim, reads=(qkv, qkv), **place)  # type: ignore[arg-type]
    yield from state_reads(f"{name}.output", 2 * inner * dim, block, layers, source=qkv, state=qkv, stack=_STACK)
    yield from state_updates(f"{name}.update", 2 * inner * dim, block, layers, reads=(qkv, qkv), stack=_STACK)
    yield matmul(f"{name}.gate", TEXT, width, inner, module="self_attn.output_gate", to=None, **place)  # type: ignore[arg-type]
    reads = (f"{name}.values", f"{name}.gate")
    yield matmul(f"{name}.out", TEXT, inner, width, module="self_attn.out_proj", reads=reads, **place)  # type: ignore[arg-type]
