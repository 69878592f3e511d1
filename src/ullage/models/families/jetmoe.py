"""JetMoE: routed experts in attention too, whose queries and outputs are an expert's."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, family
from ullage.models.mixture import STACK, Mixture, choice, whole
from ullage.models.model import model
from ullage.models.sample import TEXT, pairs
from ullage.models.work import Work, attention, matmul


@model(
    *family("JetMoe", LM, CLASSIFIER, BARE, kind="jetmoe"),
    source="transformers 5.23, models/jetmoe; verified to the integer against traces",
)
def jetmoe(config: Config) -> Iterator[Work]:
    """JetMoE: t of E experts project the queries and the outputs of attention, t of E experts are the MLP; each has a router.

    Keys and values are one projection, common to all experts; t times as many heads attend as there are key heads.
    """
    yield from whole(config, config.integer("hidden_size"), blocks(config))


def blocks(config: Config) -> Iterator[Work]:
    """Yield the works of all layers."""
    layers, width = config.layers(), config.integer("hidden_size")
    experts = choice(config, ("num_local_experts",), ("num_experts_per_tok",))
    (routed, active), dim = experts, config.integer("kv_channels", "head_dim")
    key_heads = config.integer("num_key_value_heads")
    columns, block = key_heads * dim, "self_attention"
    router = f"{block}.experts.router.layer"
    yield matmul("attention.router", TEXT, width, routed, layers, stack=STACK, module=router, to=None)
    query = f"{block}.experts.input_linear"
    yield matmul("attention.q", TEXT, width, columns, layers, stack=STACK, module=query, times=active, to=None)
    yield matmul("attention.kv", TEXT, width, 2 * columns, layers, stack=STACK, module=f"{block}.kv_proj", to=None)
    inputs = ("attention.q", "attention.kv", "attention.kv")
    yield from attention(pairs(), key_heads * active, dim, layers, stack=STACK, inputs=inputs)
    out = f"{block}.experts.output_linear"
    yield matmul("attention.out", TEXT, columns, width, layers, stack=STACK, module=out, times=active, reads=("attention.values",))
    mixture = Mixture(
        config.integer("intermediate_size"), *experts,
        router="mlp.router.layer", experts="mlp", modules=("input_linear", "output_linear"),
    )  # fmt: skip
    yield from mixture.works(width, layers)
