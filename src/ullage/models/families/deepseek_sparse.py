"""DeepSeek V3.2 and GLM-5: an indexer scores all earlier tokens, attention sees the best of them only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.families.deepseek import experts, latent_attention
from ullage.models.mixture import STACK, leading, parted, predictors, sparse_decoder
from ullage.models.model import model
from ullage.models.sample import TEXT, pairs
from ullage.models.work import Work, contraction, matmul


@model(
    *family("DeepseekV32", LM, BARE, kind="deepseek_v32"),
    source="transformers 5.23, models/deepseek_v32; verified to the integer against traces",
)
def deepseek_v32(config: Config) -> Iterator[Work]:
    """DeepSeek V3.2: V3 with an indexer of H heads of width D; a query attends to the `index_topk` keys that score best.

    The indexer adds 2T(rHD + hD + hH) + 2·pairs·(HD + H) FLOPs a layer, over all causal pairs; attention needs
    min(position, topk) keys a query, as a window of that size would. By the convention "full" both count all pairs, which is
    what an implementation by masks executes. No gradient flows through the choice of keys, so the indexer has no backward.
    """
    yield from sparse_latent_decoder(config, dense=3)


@model(
    *family("GlmMoeDsa", LM, BARE, kind="glm_moe_dsa"),
    source="transformers 5.23, models/glm_moe_dsa; verified to the integer against traces",
)
def glm_moe_dsa(config: Config) -> Iterator[Work]:
    """GLM-5: DeepSeek V3.2's plan; layers that share the choice of keys of an earlier one have no indexer."""
    yield from sparse_latent_decoder(config, dense=3)


def sparse_latent_decoder(config: Config, dense: int) -> Iterator[Work]:
    """Yield latent attention over chosen keys, the indexers that choose, and routed experts."""
    layers, width = config.layers(), config.integer("hidden_size")
    first, sparse = leading(config, layers, dense)
    mixture, chosen = experts(config), pairs(config.integer("index_topk"))
    choosing = indexed(config, layers)
    attention = [*latent_attention(config, layers, chosen), *indexer(config, choosing)]
    yield from sparse_decoder(config, attention, first, mixture.works(width, sparse))
    yield from predictors(
        config, layers, lambda ahead: [*latent_attention(config, ahead, chosen), *indexer(config, ahead), *mixture.works(width, ahead)]
    )


def indexed(config: Config, layers: Sequence[int]) -> list[int]:
    """Return the layers with an indexer of their own: all, unless `indexer_types`, a pattern or a frequency says otherwise."""
    kinds = config.words("indexer_types", len(layers), {"full", "shared"})
    pattern = config.values.get("index_topk_pattern")
    if kinds is None and isinstance(pattern, str):
        if len(pattern) != len(layers) or set(pattern) - set("FS"):
            raise config.error(["index_topk_pattern"], f"must be {len(layers)} letters F or S, one for each layer")
        kinds = ["full" if letter == "F" else "shared" for letter in pattern]
    kinds = kinds or config.words("index_topk_pattern", len(layers), {"full", "shared"})
    if kinds:
        return parted(layers, lambda i: kinds[i] == "full")[0]
    step = config.integer("index_topk_freq", default=1)
    offset = config.integer("index_skip_topk_offset", default=2, least=0)
    return parted(layers, lambda i: max(i - offset + 1, 0) % step == 0)[0]


def indexer(config: Config, layers: Sequence[int], stack: str = STACK) -> Iterator[Work]:
    """Yield what chooses the keys: narrow queries and one key a token, a score of each pair and head, their weighted sum."""
    width, rank = config.integer("hidden_size"), config.integer("q_lora_rank")
    heads, dim = config.integer("index_n_heads"), config.integer("index_head_dim")
    module = "self_attn.indexer"
    weights: list[tuple[str, int, int, str, str]] = [
        ("indexer.q", rank, heads * dim, "wq_b", "attention.q_down"),
        ("indexer.k", width, dim, "wk", "stream"),
        ("indexer.weights", width, heads, "weights_proj", "stream"),
    ]
    for name, inner, columns, leaf, read in weights:
        yield matmul(name, TEXT, inner, columns, layers, stack=stack, module=f"{module}.{leaf}", reads=(read,), to=None, gradient=False)
    reads = ("indexer.q", "indexer.k")
    yield contraction("indexer.scores", pairs(), 2 * heads * dim, layers, stack=stack, reads=reads, gradient=False)
    reads = ("indexer.weights", "indexer.scores")
    yield contraction("indexer.sum", pairs(), 2 * heads, layers, stack=stack, reads=reads, gradient=False)
